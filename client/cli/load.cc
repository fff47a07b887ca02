// `ridgeline load`
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/attention_flags.h"
#include "client/cli/commands.h"
#include "client/cli/common_flags.h"
#include "client/cli/load_document.h"
#include "client/cli/load_flags.h"
#include "client/cli/load_heading.h"
#include "client/cli/load_run.h"
#include "client/cli/load_schedule.h"
#include "client/cli/load_session_run.h"
#include "client/cli/progress.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

// Connections of their own that never retry: each refusal is to be seen.
absl::StatusOr<std::vector<client::Client>> OpenChannels(int num_channels) {
  client::ClientOptions options;
  options.timeout = absl::GetFlag(FLAGS_timeout);
  options.name = absl::GetFlag(FLAGS_client_name);
  options.tls = ReadTlsFlags();
  options.retry.max_attempts = 1;
  options.own_connection = true;
  std::vector<client::Client> channels;
  for (int i = 0; i < num_channels; ++i) {
    absl::StatusOr<client::Client> channel = client::Client::Create(absl::GetFlag(FLAGS_address), options);
    if (!channel.ok()) return channel.status();
    channels.push_back(*std::move(channel));
  }
  return channels;
}

std::string ProgressText(const Load& load, const LoadState& state) {
  const std::string counts =
      absl::StrCat(FormatCount(state.num_answered), " answered, ", FormatCount(state.num_failed), " failed");
  if (state.now_seconds < 0) return "warming up …";
  if (state.now_seconds > load.timing.duration_seconds) return absl::StrCat("waiting for the last answers, ", counts, " …");
  return absl::StrCat(static_cast<int>(state.now_seconds), " of ", FormatSeconds(load.timing.duration_seconds), ", ", counts,
                      " …");
}

LoadOutcome RunDense(const Load& load, const std::vector<client::Client>& channels) {
  LoadSchedule schedule(load.timing, load.mix, absl::GetFlag(FLAGS_seed));
  const auto make_request = [&load](const ProblemShape& shape) {
    v1::AttendRequest request = RandomRequest(shape, load.type);
    request.mutable_options()->set_algorithm(load.algorithm);
    request.mutable_output()->set_discard(!load.inline_output);
    return request;
  };
  Progress progress;
  return RunLoadThreads(channels, load.num_workers, load.timing, schedule, make_request,
                        [&](const LoadState& state) { progress.Show(ProgressText(load, state)); });
}

v1::CreateKvCacheRequest NewCache(const Load& load, const SessionSchedule& schedule) {
  const PagedLoad& paged = *load.paged;
  const SessionGeometry& geometry = paged.geometry;
  v1::CreateKvCacheRequest request;
  v1::KvCache& cache = *request.mutable_kv_cache();
  cache.set_layers(geometry.layers);
  cache.set_kv_heads(static_cast<int>(geometry.shape.kv_heads));
  cache.set_head_dim(static_cast<int>(geometry.shape.head_dim));
  cache.set_value_head_dim(static_cast<int>(geometry.shape.value_head_dim));
  cache.set_data_type(geometry.type);
  cache.set_page_tokens(static_cast<int>(geometry.page_tokens));
  const std::int64_t pages_a_session = (schedule.LongestSession() + geometry.page_tokens - 1) / geometry.page_tokens;
  const std::int64_t sessions_a_cache = (load.num_workers + paged.num_caches - 1) / paged.num_caches;
  cache.set_capacity_pages(paged.capacity_pages > 0 ? paged.capacity_pages : pages_a_session * sessions_a_cache);
  return request;
}

// Makes the caches, runs the load over them and deletes them.
absl::StatusOr<LoadOutcome> RunPaged(const Load& load, const std::vector<client::Client>& channels) {
  const PagedLoad& paged = *load.paged;
  SessionSchedule schedule(load.timing, paged.mix, load.num_workers, paged.geometry.seed);
  const v1::CreateKvCacheRequest new_cache = NewCache(load, schedule);
  std::vector<std::string> caches;
  LoadOutcome outcome;
  absl::Status status;
  while (status.ok() && static_cast<int>(caches.size()) < paged.num_caches) {
    const absl::StatusOr<v1::KvCache> cache = channels[0].CreateKvCache(new_cache);
    status = cache.status();
    if (cache.ok()) caches.push_back(cache->name());
  }
  if (status.ok()) {
    const SessionRequests requests(paged.geometry);
    const SessionLoad sessions = {load.timing, load.num_workers, paged.recreate, paged.cancel_share,
                                  absl::GetFlag(FLAGS_timeout)};
    Progress progress;
    outcome = RunSessions(channels, caches, sessions, requests, schedule, [&](const SessionLoadState& state) {
      progress.Show(state.num_filled.has_value()
                        ? absl::StrCat("filling contexts, ", *state.num_filled, " of ", load.num_workers, " …")
                        : ProgressText(load, state.load));
    });
  }
  for (const std::string& cache : caches) status.Update(channels[0].DeleteKvCache(cache));
  if (!status.ok()) return status;
  return outcome;
}

}  // namespace

absl::StatusOr<Result> RunLoad(const client::Client& client) {
  const absl::StatusOr<Load> load = LoadFromFlags();
  if (!load.ok()) return load.status();
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();
  const absl::StatusOr<std::vector<client::Client>> channels = OpenChannels(load->num_channels);
  if (!channels.ok()) return channels.status();

  absl::StatusOr<LoadOutcome> outcome = load->paged.has_value() ? RunPaged(*load, *channels) : RunDense(*load, *channels);
  if (!outcome.ok()) return outcome.status();
  Result result;
  result.interruption = outcome->ended_by;
  result.complaint = ComplaintAbout(*outcome, load->allow_refused);
  if (!outcome->ended_by.ok() && outcome->prefill.num_answered + outcome->decode.num_answered == 0) return outcome->ended_by;
  result.document.heading = HeadingOf(*load, device->name());
  result.document.sections.push_back(LoadSection(*load, device->name()));
  AppendOutcome(result.document, *std::move(outcome), load->open_loop());
  return result;
}

}  // namespace ridgeline::cli
