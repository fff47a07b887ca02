#include "server/base/version.h"

namespace ridgeline::base {

std::string_view Version() { return RIDGELINE_VERSION; }

}  // namespace ridgeline::base
