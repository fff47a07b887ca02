#include "server/base/trace_context.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kParent = "00f067aa0ba902b7";

TEST(ParseTraceparent, HasTraceAndParent) {
  const std::optional<TraceContext> context = ParseTraceparent("00-" + kTrace + "-" + kParent + "-01");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
}

TEST(ParseTraceparent, LaterVersionsMayHaveMore) {
  EXPECT_TRUE(ParseTraceparent("cc-" + kTrace + "-" + kParent + "-01").has_value());
  EXPECT_TRUE(ParseTraceparent("cc-" + kTrace + "-" + kParent + "-01-what-the-future-brings").has_value());
  EXPECT_FALSE(ParseTraceparent("cc-" + kTrace + "-" + kParent + "-01.more").has_value());
  EXPECT_FALSE(ParseTraceparent("00-" + kTrace + "-" + kParent + "-01-more").has_value());
}

TEST(ParseTraceparent, WhatIsInvalidIsLeftAside) {
  for (const std::string& header :
       {std::string(), std::string("00"), "00-" + kTrace + "-" + kParent, "00-" + kTrace + "-" + kParent + "-1",
        "ff-" + kTrace + "-" + kParent + "-01", "0g-" + kTrace + "-" + kParent + "-01", "00-" + kTrace + "_" + kParent + "-01",
        "00-" + std::string(32, '0') + "-" + kParent + "-01", "00-" + kTrace + "-" + std::string(16, '0') + "-01",
        "00-" + std::string(32, 'A') + "-" + kParent + "-01", "00-" + kTrace.substr(1) + "\n-" + kParent + "-01",
        "00-" + kTrace + "-" + kParent + "-0x"}) {
    EXPECT_FALSE(ParseTraceparent(header).has_value()) << header;
  }
}

}  // namespace
}  // namespace ridgeline::base
