#include "tests/resilience/known_answer.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"

namespace ridgeline::resilience {
namespace {

using integration::InlineTensor;

// Of one key the output is its value, whatever the query.
TEST(KnownAnswerTest, TellsRightFromWrong) {
  const integration::Tokens token = integration::RandomTokens(1, /*seed=*/3);
  const KnownAnswer known(integration::DenseRequest(token, /*query_tokens=*/1, /*query_seed=*/4));
  std::vector<float> output;
  for (std::int64_t head = 0; head < integration::kQueryHeads; ++head) {
    const auto value =
        token.value.begin() + head / (integration::kQueryHeads / integration::kKvHeads) * integration::kValueHeadDim;
    output.insert(output.end(), value, value + integration::kValueHeadDim);
  }
  const std::vector<std::int64_t> shape = {1, 1, integration::kQueryHeads, integration::kValueHeadDim};
  EXPECT_TRUE(known.IsRight(InlineTensor(shape, output)));
  std::vector<float> wrong = output;
  wrong[5] += 1e-3F;
  EXPECT_FALSE(known.IsRight(InlineTensor(shape, wrong)));
  wrong.pop_back();
  EXPECT_FALSE(known.IsRight(InlineTensor(shape, wrong)));
}

}  // namespace
}  // namespace ridgeline::resilience
