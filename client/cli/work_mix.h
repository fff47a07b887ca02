// What the requests of a load ask for: prefills of given shapes, and decode steps over contexts of drawn lengths.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/arguments.h"
#include "client/cli/length_distribution.h"

namespace ridgeline::cli {

// A shape, and how often it is drawn in relation to the others.
struct WeightedShape {
  double weight = 1;
  ProblemShape shape;
};

// "[WEIGHT:]SHAPE[/[WEIGHT:]SHAPE...]" with shapes as ParseProblemShape takes them, no extent 0, and weights above 0. A usage
// error, naming --shapes, for anything else.
absl::StatusOr<std::vector<WeightedShape>> ParseWeightedShapes(absl::string_view text);

// One request.
struct Work {
  bool decode = false;
  ProblemShape shape;
};

struct WorkMix {
  std::vector<WeightedShape> shapes;          // at least one
  double decode_share = 0;                    // 0 to 1
  std::optional<LengthDistribution> context;  // of decode steps; none: the drawn shape's key tokens

  // A decode step is the drawn shape with one query token.
  Work Draw(std::mt19937_64& random);
};

}  // namespace ridgeline::cli
