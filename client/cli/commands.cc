#include "client/cli/commands.h"

namespace ridgeline::cli {

absl::Span<const Command> Commands() {
  static const auto* const kCommands = new std::vector<Command>{
      {"attend",
       "one attention call, from .npy files or random tensors, with its report",
       {"attend --query=q.npy --key=k.npy --value=v.npy --causal --output=o.npy", "attend --random=1,4096,8,128 --repeat=10",
        "attend --random=8,1,4096,32,8,128 --dtype=bfloat16 --algorithm=flash",
        "attend --random=1,256,2,64 --alibi_slopes=0.25,0.0625 --sink_logits=0,-inf"},
       {"query",        "key",           "value",       "random", "key_tokens",        "kv_heads",    "value_head_dim",
        "seed",         "query_lengths", "key_lengths", "dtype",  "algorithm",         "causal",      "window_left",
        "window_right", "scale",         "soft_cap",    "bias",   "alibi_slopes",      "sink_logits", "repeat",
        "output",       "log_sum_exp",   "tolerance",   "expect", "expect_log_sum_exp"},
       &RunAttend},
      {"compare",
       "standard against flash attention over growing lengths: time, workspace, rates, agreement",
       {"compare", "compare --lengths=1024,2048,4096 --heads=32 --kv_heads=8 --head_dim=128 --causal --repeat=5",
        "compare --dtype=bfloat16 --format=csv"},
       {"lengths", "batch", "heads", "kv_heads", "head_dim", "value_head_dim", "seed", "dtype", "causal", "window_left",
        "window_right", "scale", "soft_cap", "repeat"},
       &RunCompare},
      {"load",
       "many requests, in a closed or an open loop: rates, refusals, latency up to p99.9",
       {"load --clients=8 --duration=30s", "load --rate=200 --shapes=3:1,512,8,64/1:1,2048,8,64 --causal",
        "load --clients=64 --shapes=1,512,512,32,8,128 --decode_share=0.95 --context=lognormal:2048,0.8 --dtype=bfloat16",
        "load --rate=1000 --decode_share=1 --context=trace:lengths.txt --max_in_flight=256 --allow_refused --format=json"},
       {"clients",  "rate",     "max_in_flight", "drain",        "channels",    "warm_up",
        "duration", "shapes",   "decode_share",  "context",      "kv_heads",    "value_head_dim",
        "seed",     "dtype",    "algorithm",     "causal",       "window_left", "window_right",
        "scale",    "soft_cap", "inline_output", "allow_refused"},
       &RunLoad},
      {"device", "the device, its measured peaks and their ridge points", {"device", "device --format=json"}, {}, &RunDevice},
      {"memory",
       "what the allocator of device memory holds",
       {"memory", "memory --empty_cache --reset_peaks"},
       {"empty_cache", "reset_peaks"},
       &RunMemory},
      {"health",
       "exit status 0 if the daemon is serving, for health checks",
       {"health", "health --service=ridgeline.v1.AttentionService --timeout=2s"},
       {"service"},
       &RunHealth},
  };
  return *kCommands;
}

const Command* FindCommand(const std::string& name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace ridgeline::cli
