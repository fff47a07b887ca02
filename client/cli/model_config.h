// The geometry of a model from its description: a Hugging Face config.json, or words.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ridgeline/v1/memory.pb.h"

namespace ridgeline::cli {

// Sets what a config.json says, under the names of Llama, Mistral, Qwen, Gemma, GPT-2, GPT-NeoX, OPT and their like; the data
// type of the weights too, if it says that. A usage error, naming `path`, for text that is no JSON object or lacks the layers,
// the width or the heads.
absl::Status ReadModelConfig(const std::string& path, absl::string_view json, v1::PlanMemoryRequest& request);

// "layers=32,hidden=4096,heads=32,kv_heads=8,head_dim=128,intermediate=14336,vocabulary=128256,experts=8,experts_per_token=2,
// parameters=7e9,gated,tied": sets those that it names. A usage error for other words.
absl::Status ReadModelWords(absl::string_view words, v1::ModelGeometry& model);

// "data=8,tensor=2,pipeline=4,zero=3,sequence": likewise.
absl::Status ReadShardingWords(absl::string_view words, v1::Sharding& sharding);

}  // namespace ridgeline::cli
