#include "server/engine/trace/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace ridgeline::engine {
namespace {

constexpr int kCalls = 1;   // pid
constexpr int kDevice = 2;  // pid

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c >= ' ' && c < '\x7f') {
      quoted += c;
    } else {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return quoted + '"';
}

// Writes events, one a line.
class EventWriter {
 public:
  explicit EventWriter(absl::Time zero) : zero_(zero) {}

  // `rest`: further members, each ",name:value".
  void Add(std::string_view phase, std::string_view name, int pid, std::string_view rest) {
    absl::StrAppend(&json_, json_.empty() ? "" : ",\n", "{\"ph\":", Quoted(phase), ",\"name\":", Quoted(name), ",\"pid\":", pid,
                    absl::string_view(rest.data(), rest.size()), "}");
  }

  // A span of a track that has the name `track`; spans of a track nest.
  void AddAsync(std::string_view name, std::string_view track, absl::Time begin, absl::Time end, std::string_view arguments,
                const std::vector<std::string>& children = {}) {
    Add("b", name, kCalls, absl::StrCat(AsyncMembers(track, begin), ",\"args\":{", View(arguments), "}"));
    for (const std::string& child : children) absl::StrAppend(&json_, ",\n", child);
    Add("e", name, kCalls, AsyncMembers(track, end));
  }
  // The pair of events of such a span, to be a child of another.
  std::string Child(std::string_view name, std::string_view track, absl::Time begin, absl::Time end,
                    std::string_view arguments) const {
    EventWriter writer(zero_);
    writer.AddAsync(name, track, begin, end, arguments);
    return std::move(writer.json_);
  }

  void AddComplete(std::string_view name, std::string_view category, int lane, absl::Time begin, absl::Duration duration,
                   std::string_view arguments) {
    Add("X", name, kDevice,
        absl::StrCat(",\"tid\":", lane + 1, ",\"cat\":", Quoted(category), ",\"ts\":", Microseconds(begin - zero_),
                     ",\"dur\":", Microseconds(duration), ",\"args\":{", View(arguments), "}"));
  }

  const std::string& json() const { return json_; }

 private:
  static absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
  static std::string Microseconds(absl::Duration duration) {
    return absl::StrFormat("%.3f", absl::ToDoubleMicroseconds(duration));
  }
  std::string AsyncMembers(std::string_view track, absl::Time time) const {
    return absl::StrCat(",\"tid\":1,\"cat\":\"call\",\"id\":", Quoted(track), ",\"ts\":", Microseconds(time - zero_));
  }

  const absl::Time zero_;
  std::string json_;
};

void NameTracks(const std::string& device, int num_lanes, EventWriter& writer) {
  writer.Add("M", "process_name", kCalls, ",\"args\":{\"name\":\"calls\"}");
  writer.Add("M", "process_name", kDevice, absl::StrCat(",\"args\":{\"name\":", Quoted(device), "}"));
  for (int lane = 0; lane < num_lanes; ++lane) {
    writer.Add("M", "thread_name", kDevice, absl::StrCat(",\"tid\":", lane + 1, ",\"args\":{\"name\":\"lane ", lane, "\"}"));
  }
}

std::string ArgumentsOf(const TraceOrigin& origin) {
  std::string arguments = absl::StrCat("\"request\":", Quoted(origin.request_id));
  if (origin.trace_id.empty()) return arguments;
  return absl::StrCat(arguments, ",\"trace_id\":", Quoted(origin.trace_id), ",\"parent_id\":", Quoted(origin.parent_id));
}

// What a request spent its time on until the lane had completed it.
std::vector<std::string> PhasesOf(const RequestRecord& request, std::string_view track, const EventWriter& writer) {
  const std::string arguments = ArgumentsOf(request.origin);
  return {writer.Child("queue", track, request.arrival, request.lease_begin, arguments),
          writer.Child("lane", track, request.lease_begin, request.completed,
                       absl::StrCat(arguments, ",\"launch\":", request.launch))};
}

// `request`: the call's only one, drawn as its phases; null: it has none or many.
void AddCall(const CallRecord& call, const RequestRecord* request, EventWriter& writer) {
  const std::string& id = call.origin.request_id;
  const std::string arguments = absl::StrCat(ArgumentsOf(call.origin), ",\"code\":", Quoted(call.code));
  std::vector<std::string> phases;
  if (request != nullptr) {
    phases = PhasesOf(*request, id, writer);
    phases.insert(phases.begin(), writer.Child("receive", id, call.begin, request->arrival, ArgumentsOf(call.origin)));
    phases.push_back(writer.Child("answer", id, request->completed, call.end, ArgumentsOf(call.origin)));
  }
  writer.AddAsync(call.method, id, call.begin, call.end, arguments, phases);
}

void AddRequest(const RequestRecord& request, std::size_t n, EventWriter& writer) {
  const std::string track = absl::StrCat(request.origin.request_id, "/", n);
  writer.AddAsync("request", track, request.arrival, request.completed, ArgumentsOf(request.origin),
                  PhasesOf(request, track, writer));
}

void AddLaunch(const LaunchRecord& launch, EventWriter& writer) {
  std::string arguments = absl::StrCat("\"launch\":", launch.number, ",\"requests\":[");
  for (std::size_t i = 0; i < launch.request_ids.size(); ++i) {
    absl::StrAppend(&arguments, i == 0 ? "" : ",", Quoted(launch.request_ids[i]));
  }
  arguments += ']';
  const std::string error = launch.error.empty() ? "" : absl::StrCat(",\"error\":", Quoted(launch.error));
  writer.AddComplete(absl::StrCat("launch of ", launch.request_ids.size()), "launch", launch.lane, launch.begin,
                     launch.end - launch.begin, absl::StrCat(arguments, error));
  for (const DeviceSpan& span : launch.spans) {
    // The clocks of host and device differ by less than a span: it stays within its launch.
    const absl::Time begin = std::max(launch.end - span.begin, launch.begin);
    const absl::Time end = std::max(launch.end - span.begin + span.duration, begin);
    writer.AddComplete(span.name, span.kind == SpanKind::kCopy ? "copy" : "kernel", launch.lane, begin, end - begin,
                       absl::StrCat(arguments, span.bytes > 0 ? absl::StrCat(",\"bytes\":", span.bytes) : ""));
  }
}

}  // namespace

std::string ChromeTraceJson(const TraceRecords& records, const std::string& device, int num_lanes) {
  EventWriter writer(records.begin);
  NameTracks(device, num_lanes, writer);
  std::map<std::string_view, std::vector<const RequestRecord*>> requests;  // by id
  for (const RequestRecord& request : records.requests) requests[request.origin.request_id].push_back(&request);
  for (const CallRecord& call : records.calls) {
    const auto own = requests.find(call.origin.request_id);
    // A call that was given up has its status before the lane has let go of it.
    const bool is_within = own != requests.end() && own->second.size() == 1 && own->second.front()->completed <= call.end;
    AddCall(call, is_within ? own->second.front() : nullptr, writer);
    if (is_within) requests.erase(own);
  }
  // Of streams, and of calls that have not ended or ended before.
  for (const auto& [id, of_call] : requests) {
    for (std::size_t n = 0; n < of_call.size(); ++n) AddRequest(*of_call[n], n + 1, writer);
  }
  for (const LaunchRecord& launch : records.launches) AddLaunch(launch, writer);
  return absl::StrCat("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"begin\":",
                      Quoted(absl::FormatTime(absl::RFC3339_full, records.begin, absl::UTCTimeZone())), ",\"dropped\":\"",
                      records.dropped, "\"},\"traceEvents\":[\n", writer.json(), "\n]}\n");
}

}  // namespace ridgeline::engine
