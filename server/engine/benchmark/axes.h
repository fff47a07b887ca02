// What a benchmark can be varied along, and the points that a request's values span.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace ridgeline::engine::benchmark {

// Values are words, or integers of at least `minimum` and at most `maximum`.
struct Axis {
  std::string name;
  std::string description;  // with the unit
  std::vector<std::string> default_values;
  std::vector<std::string> choices = {};  // the words; empty: integers
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
  std::int64_t multiple_of = 1;
};

Axis WordAxis(std::string name, std::string description, std::vector<std::string> choices,
              std::vector<std::string> default_values = {});  // by default, all choices
Axis IntegerAxis(std::string name, std::string description, std::int64_t minimum, std::int64_t maximum,
                 const std::vector<std::int64_t>& default_values, std::int64_t multiple_of = 1);

// One value of each axis, in the axes' order. Values have been checked.
class AxisValues {
 public:
  AxisValues() = default;
  explicit AxisValues(std::vector<std::pair<std::string, std::string>> values) : values_(std::move(values)) {}

  // The benchmark has that axis, of that kind.
  const std::string& Word(std::string_view axis) const;
  std::int64_t Integer(std::string_view axis) const;

  const std::vector<std::pair<std::string, std::string>>& all() const { return values_; }
  std::string ToString() const;  // "operation=read, working_set_bytes=16384"

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

inline constexpr std::int64_t kMaxPoints = 1000;

// All combinations that make sense, the first axis varying slowest. `wanted` replaces defaults. Errors: INVALID_ARGUMENT about
// the field axes, or axes.NAME: no such axis, no value, a value that is not allowed, more than kMaxPoints points, or none.
absl::StatusOr<std::vector<AxisValues>> ExpandAxes(const std::vector<Axis>& axes,
                                                   const std::map<std::string, std::vector<std::string>>& wanted,
                                                   absl::FunctionRef<bool(const AxisValues&)> makes_sense);

}  // namespace ridgeline::engine::benchmark
