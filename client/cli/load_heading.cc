#include "client/cli/load_heading.h"

#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/common_flags.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

std::string Plural(std::int64_t count, const std::string& thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

std::string LoopText(const Load& load) {
  if (!load.open_loop()) return absl::StrCat("Closed loop: ", Plural(load.num_workers, "client"));
  const std::string what =
      load.timing.rate_per_second.has_value()
          ? FormatPerSecond(*load.timing.rate_per_second)
          : absl::StrCat(Plural(static_cast<std::int64_t>(load.paged->mix.trace.size()), "session"), " of ", load.flags.trace);
  return absl::StrCat("Open loop: ", what, ", at most ", load.num_workers, " in flight");
}

std::string ContextText(const Load& load) {
  return load.flags.context.empty() ? "" : absl::StrCat(" over ", load.flags.context);
}

std::string WorkText(const Load& load) {
  const std::string shapes = absl::StrCat("Shapes ", load.flags.shapes);
  if (!load.paged.has_value()) {
    if (load.mix.decode_share == 0) return shapes;
    return absl::StrCat(shapes, "; ", FormatFraction(load.mix.decode_share), " decode steps", ContextText(load));
  }
  const PagedLoad& paged = *load.paged;
  const std::string sessions = paged.mix.trace.empty()
                                   ? absl::StrCat(load.flags.decode_tokens, " tokens decoded", ContextText(load))
                                   : "sessions of the trace";
  return absl::StrCat(shapes, "; ", sessions, ", ", Plural(paged.geometry.layers, "layer"), ", pages of ",
                      paged.geometry.page_tokens, " in ", Plural(paged.num_caches, "cache"));
}

}  // namespace

std::string HeadingOf(const Load& load, const std::string& device) {
  const LoadTiming& timing = load.timing;
  return absl::StrCat(device, "\n", LoopText(load), " on ", Plural(load.num_channels, "connection"), ", ",
                      FormatSeconds(timing.duration_seconds), " after ", FormatSeconds(timing.warm_up_seconds), " of warm-up\n",
                      WorkText(load), "; ", DataTypeName(load.type), ", mask: ", MaskText(OptionsFromFlags()),
                      ", algorithm: ", AlgorithmName(load.algorithm));
}

Section LoadSection(const Load& load, const std::string& device) {
  const std::optional<double> rate = load.timing.rate_per_second;
  const auto if_given = [](bool given, Value value) { return given ? value : Value(); };
  const bool is_paged = load.paged.has_value();
  const PagedLoad paged = load.paged.value_or(PagedLoad());
  return {"",
          {{"device", "", device},
           {"loop", "", load.open_loop() ? "open" : "closed"},
           {"clients", "", if_given(!load.open_loop(), std::int64_t{load.num_workers})},
           {"target_requests_per_second", "", if_given(rate.has_value(), rate.value_or(0))},
           {"max_in_flight", "", if_given(load.open_loop(), std::int64_t{load.num_workers})},
           {"channels", "", std::int64_t{load.num_channels}},
           {"shapes", "", load.flags.shapes},
           {"decode_share", "", is_paged ? paged.mix.decode_share : load.mix.decode_share},
           {"context", "", if_given(!load.flags.context.empty(), load.flags.context)},
           {"data_type", "", DataTypeName(load.type)},
           {"mask", "", MaskText(OptionsFromFlags())},
           {"algorithm", "", AlgorithmName(load.algorithm)},
           {"paged", "", is_paged},
           {"decode_tokens", "", if_given(is_paged, load.flags.decode_tokens)},
           {"trace", "", if_given(!load.flags.trace.empty(), load.flags.trace)},
           {"layers", "", if_given(is_paged, std::int64_t{paged.geometry.layers})},
           {"page_tokens", "", if_given(is_paged, paged.geometry.page_tokens)},
           {"caches", "", if_given(is_paged, std::int64_t{paged.num_caches})},
           {"cancel_share", "", if_given(is_paged, paged.cancel_share)},
           {"timeout_seconds", "", absl::ToDoubleSeconds(absl::GetFlag(FLAGS_timeout))},
           {"seed", "", static_cast<std::int64_t>(absl::GetFlag(FLAGS_seed))},
           {"warm_up_seconds", "", load.timing.warm_up_seconds},
           {"duration_seconds", "", load.timing.duration_seconds}}};
}

}  // namespace ridgeline::cli
