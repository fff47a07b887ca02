#include "server/engine/benchmark/axes.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/common/saturating.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine::benchmark {
namespace {

using Wanted = std::map<std::string, std::vector<std::string>>;

// A value from a request may be of any length; a message repeats its beginning.
std::string Shown(const std::string& value) {
  constexpr std::size_t kMostShown = 40;
  return value.size() <= kMostShown ? value : value.substr(0, kMostShown) + "...";
}

std::string FieldOf(const Axis& axis) { return absl::StrCat("axes.", axis.name); }

absl::Status CheckWord(const Axis& axis, const std::string& value) {
  if (std::find(axis.choices.begin(), axis.choices.end(), value) != axis.choices.end()) return absl::OkStatus();
  return base::InvalidField(FieldOf(axis), absl::StrCat("axes.", axis.name, " has '", Shown(value), "'; allowed are ",
                                                        absl::StrJoin(axis.choices, ", ")));
}

absl::Status CheckInteger(const Axis& axis, const std::string& value) {
  std::int64_t number = 0;
  const bool is_canonical = absl::SimpleAtoi(value, &number) && absl::StrCat(number) == value;
  if (is_canonical && number >= axis.minimum && number <= axis.maximum && number % axis.multiple_of == 0) {
    return absl::OkStatus();
  }
  const std::string multiple = axis.multiple_of == 1 ? "" : absl::StrCat(", multiples of ", axis.multiple_of);
  return base::InvalidField(
      FieldOf(axis), absl::StrCat("axes.", axis.name, " has '", Shown(value), "'; allowed are integers from ", axis.minimum,
                                  " to ", axis.maximum, multiple));
}

absl::Status CheckNames(const std::vector<Axis>& axes, const Wanted& wanted) {
  for (const auto& [name, values] : wanted) {
    const auto has_name = [&name = name](const Axis& axis) { return axis.name == name; };
    if (std::any_of(axes.begin(), axes.end(), has_name)) continue;
    const std::string names = absl::StrJoin(axes, ", ", [](std::string* out, const Axis& axis) { *out += axis.name; });
    return base::InvalidField("axes", absl::StrCat("axes has '", Shown(name), "'; this benchmark's are ", names));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ValuesOf(const Axis& axis, const Wanted& wanted) {
  const auto found = wanted.find(axis.name);
  if (found == wanted.end()) return axis.default_values;
  if (found->second.empty()) {
    return base::InvalidField(FieldOf(axis), absl::StrCat("axes.", axis.name, " has no value; one at least is needed"));
  }
  for (const std::string& value : found->second) {
    RIDGELINE_RETURN_IF_ERROR(axis.choices.empty() ? CheckInteger(axis, value) : CheckWord(axis, value));
  }
  return found->second;
}

// The `index`-th combination, the last axis varying fastest.
AxisValues Combination(const std::vector<Axis>& axes, const std::vector<std::vector<std::string>>& values, std::int64_t index) {
  std::vector<std::pair<std::string, std::string>> chosen(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    const auto count = static_cast<std::int64_t>(values[i].size());
    chosen[i] = {axes[i].name, values[i][index % count]};
    index /= count;
  }
  return AxisValues(std::move(chosen));
}

}  // namespace

Axis WordAxis(std::string name, std::string description, std::vector<std::string> choices,
              std::vector<std::string> default_values) {
  Axis axis{.name = std::move(name), .description = std::move(description), .default_values = std::move(default_values)};
  if (axis.default_values.empty()) axis.default_values = choices;
  axis.choices = std::move(choices);
  return axis;
}

Axis IntegerAxis(std::string name, std::string description, std::int64_t minimum, std::int64_t maximum,
                 const std::vector<std::int64_t>& default_values, std::int64_t multiple_of) {
  Axis axis{.name = std::move(name), .description = std::move(description), .default_values = {}};
  for (const std::int64_t value : default_values) axis.default_values.push_back(absl::StrCat(value));
  axis.minimum = minimum;
  axis.maximum = maximum;
  axis.multiple_of = multiple_of;
  return axis;
}

const std::string& AxisValues::Word(std::string_view axis) const {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == axis; });
  RIDGELINE_CHECK(found != values_.end());
  return found->second;
}

std::int64_t AxisValues::Integer(std::string_view axis) const {
  std::int64_t number = 0;
  RIDGELINE_CHECK(absl::SimpleAtoi(Word(axis), &number));
  return number;
}

std::string AxisValues::ToString() const { return absl::StrJoin(values_, ", ", absl::PairFormatter("=")); }

absl::StatusOr<std::vector<AxisValues>> ExpandAxes(const std::vector<Axis>& axes, const Wanted& wanted,
                                                   absl::FunctionRef<bool(const AxisValues&)> makes_sense) {
  RIDGELINE_RETURN_IF_ERROR(CheckNames(axes, wanted));
  std::vector<std::vector<std::string>> values;
  std::int64_t num_combinations = 1;
  for (const Axis& axis : axes) {
    RIDGELINE_ASSIGN_OR_RETURN(values.emplace_back(), ValuesOf(axis, wanted));
    num_combinations = kernels::SaturatingMultiply({num_combinations, static_cast<std::int64_t>(values.back().size())});
    if (num_combinations > kMaxPoints) {
      return base::InvalidField("axes", absl::StrCat("axes span more than ", kMaxPoints, " points; ask for fewer values"));
    }
  }
  std::vector<AxisValues> points;
  for (std::int64_t i = 0; i < num_combinations; ++i) {
    AxisValues point = Combination(axes, values, i);
    if (makes_sense(point)) points.push_back(std::move(point));
  }
  if (points.empty())
    return base::InvalidField("axes", "axes have no combination of values that makes sense; see the description");
  return points;
}

}  // namespace ridgeline::engine::benchmark
