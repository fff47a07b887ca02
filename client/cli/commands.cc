#include "client/cli/commands.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ridgeline::cli {

absl::Span<const Command> Commands() {
  static const auto* const kCommands = new std::vector<Command>{
      {"attend",
       "one attention call, from .npy files or random tensors, with its report",
       {"attend --query=q.npy --key=k.npy --value=v.npy --causal --output=o.npy", "attend --random=1,4096,8,128 --repeat=10",
        "attend --random=8,1,4096,32,8,128 --dtype=bfloat16 --algorithm=flash",
        "attend --random=1,256,2,64 --alibi_slopes=0.25,0.0625 --sink_logits=0,-inf",
        "attend --sequence=chat/a --random=1,512,8,64 --kv_heads=2 --causal"},
       {"query",        "key",           "value",       "random", "key_tokens",         "kv_heads",    "value_head_dim",
        "seed",         "query_lengths", "key_lengths", "dtype",  "algorithm",          "causal",      "window_left",
        "window_right", "scale",         "soft_cap",    "bias",   "alibi_slopes",       "sink_logits", "repeat",
        "output",       "log_sum_exp",   "tolerance",   "expect", "expect_log_sum_exp", "sequence",    "layer",
        "append"},
       &RunAttend},
      {"compare",
       "standard against flash attention over growing lengths: time, workspace, rates, agreement",
       {"compare", "compare --lengths=1024,2048,4096 --heads=32 --kv_heads=8 --head_dim=128 --causal --repeat=5",
        "compare --dtype=bfloat16 --format=csv"},
       {"lengths", "batch", "heads", "kv_heads", "head_dim", "value_head_dim", "seed", "dtype", "causal", "window_left",
        "window_right", "scale", "soft_cap", "repeat"},
       &RunCompare},
      {"fuse",
       "a fused operation, beside the same in a kernel a step; without a name, what there is",
       {"fuse", "fuse layer_norm --shape=16384,4096 --dtype=bfloat16", "fuse rope --shape=4,2048,32,128 --layout=interleaved",
        "fuse rms_norm --input=x.npy --weight=w.npy --mode=fused --output=y.npy",
        "fuse rope_append --sequence=chat/a --shape=1,1,32,128 --kv_heads=8 --mode=fused"},
       {"op",      "mode",         "shape",          "input",    "residual",   "up",       "weight",
        "bias",    "dtype",        "seed",           "repeat",   "check",      "epsilon",  "gelu",
        "dropout", "dropout_seed", "dropout_offset", "layout",   "rotary_dim", "base",     "first_position",
        "query",   "key",          "value",          "sequence", "layer",      "kv_heads", "value_head_dim",
        "output",  "sum_output"},
       &RunFuse,
       {"op"}},
      {"load",
       "many requests, in a closed or an open loop: rates, refusals, latency up to p99.9",
       {"load --clients=8 --duration=30s", "load --rate=200 --shapes=3:1,512,8,64/1:1,2048,8,64 --causal",
        "load --clients=64 --shapes=1,512,512,32,8,128 --decode_share=0.95 --context=lognormal:2048,0.8 --dtype=bfloat16",
        "load --rate=1000 --decode_share=1 --context=trace:lengths.txt --max_in_flight=256 --allow_refused --format=json",
        "load --paged --clients=128 --channels=16 --shapes=1,512,8192,32,8,128 --dtype=bfloat16",
        "load --paged --rate=20 --context=lognormal:2048,0.8 --decode_tokens=uniform:16,512 --layers=4"},
       {"clients",        "rate",          "max_in_flight", "drain",        "channels",       "warm_up",     "duration",
        "shapes",         "decode_share",  "context",       "kv_heads",     "value_head_dim", "seed",        "dtype",
        "algorithm",      "causal",        "window_left",   "window_right", "scale",          "soft_cap",    "inline_output",
        "paged",          "decode_tokens", "session_end",   "trace",        "layers",         "page_tokens", "caches",
        "capacity_pages", "cancel_share",  "allow_refused"},
       &RunLoad},
      {"cache create",
       "makes a KV cache, or a sequence in one",
       {"cache create chat --layers=32 --kv_heads=8 --head_dim=128 --dtype=bfloat16 --capacity_pages=4096",
        "cache create chat/a", "cache create --kv_heads=2 --capacity_bytes=1073741824 --eviction=lru --lease=1h"},
       {"name", "layers", "kv_heads", "head_dim", "value_head_dim", "dtype", "page_tokens", "capacity_pages", "capacity_bytes",
        "lease", "eviction"},
       &RunCacheCreate,
       {"name"}},
      {"cache list", "the KV caches of the daemon", {"cache list", "cache list --format=csv"}, {}, &RunCacheList},
      {"cache show",
       "a KV cache and its sequences, or one sequence",
       {"cache show chat", "cache show chat/a --format=json"},
       {"name"},
       &RunCacheShow,
       {"name"}},
      {"cache renew",
       "begins the lease of a KV cache anew",
       {"cache renew chat --lease=1h"},
       {"name", "lease"},
       &RunCacheRenew,
       {"name"}},
      {"cache delete",
       "deletes a KV cache with its sequences, or one sequence",
       {"cache delete chat/a", "cache delete chat"},
       {"name"},
       &RunCacheDelete,
       {"name"}},
      {"cache fork",
       "a second sequence with the same tokens, sharing their pages",
       {"cache fork chat/a b"},
       {"name", "fork"},
       &RunCacheFork,
       {"name", "fork"}},
      {"cache truncate",
       "forgets the last tokens of a sequence",
       {"cache truncate chat/a 100"},
       {"name", "length"},
       &RunCacheTruncate,
       {"name", "length"}},
      {"cache export",
       "writes a sequence to a file",
       {"cache export chat/a a.kv"},
       {"name", "file"},
       &RunCacheExport,
       {"name", "file"}},
      {"cache import",
       "makes a sequence from such a file, on this daemon or another",
       {"cache import chat/a a.kv", "cache import chat a.kv"},
       {"name", "file"},
       &RunCacheImport,
       {"name", "file"}},
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

std::vector<const Command*> CommandsOf(const std::string& first_word) {
  std::vector<const Command*> commands;
  for (const Command& command : Commands()) {
    if (absl::StartsWith(command.name, absl::StrCat(first_word, " "))) commands.push_back(&command);
  }
  return commands;
}

}  // namespace ridgeline::cli
