#include "client/cli/document.h"

namespace ridgeline::cli {

Value Value::Missing(std::string shown, Tone tone) {
  Value value;
  value.tone = tone;
  value.shown_if_missing = std::move(shown);
  return value;
}

}  // namespace ridgeline::cli
