#include "client/cli/work_mix.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ridgeline::cli {
namespace {

absl::StatusOr<WeightedShape> ParseWeightedShape(absl::string_view text) {
  WeightedShape weighted;
  absl::string_view extents = text;
  if (const std::size_t colon = text.find(':'); colon != absl::string_view::npos) {
    const absl::string_view weight = text.substr(0, colon);
    if (!absl::SimpleAtod(weight, &weighted.weight) || !std::isfinite(weighted.weight) || weighted.weight <= 0) {
      return UsageError(absl::StrCat("--shapes has the weight '", weight, "'; finite numbers above 0 are allowed"));
    }
    extents = text.substr(colon + 1);
  }
  const absl::StatusOr<ProblemShape> shape = ParseProblemShape("shapes", extents);
  if (!shape.ok()) return shape.status();
  weighted.shape = *shape;
  const ProblemShape& s = *shape;
  if (std::min({s.batch, s.query_tokens, s.key_tokens, s.query_heads, s.kv_heads, s.head_dim}) == 0) {
    return UsageError(absl::StrCat("--shapes has '", extents, "'; extents of at least 1 are allowed"));
  }
  return weighted;
}

}  // namespace

absl::StatusOr<std::vector<WeightedShape>> ParseWeightedShapes(absl::string_view text) {
  std::vector<WeightedShape> shapes;
  for (const absl::string_view item : absl::StrSplit(text, '/')) {
    const absl::StatusOr<WeightedShape> shape = ParseWeightedShape(item);
    if (!shape.ok()) return shape.status();
    shapes.push_back(*shape);
  }
  return shapes;
}

Work WorkMix::Draw(std::mt19937_64& random) {
  std::vector<double> weights;
  for (const WeightedShape& shape : shapes) weights.push_back(shape.weight);
  Work work;
  work.shape = shapes[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random)].shape;
  work.decode = std::uniform_real_distribution<double>()(random) < decode_share;
  if (!work.decode) return work;
  work.shape.query_tokens = 1;
  if (context.has_value()) work.shape.key_tokens = context->Draw(random);
  return work;
}

}  // namespace ridgeline::cli
