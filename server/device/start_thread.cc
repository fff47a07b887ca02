#include "server/device/start_thread.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ridgeline::device {

absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body) {
  try {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    return thread;
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start thread ", name, ": ", error.what()));
  }
}

}  // namespace ridgeline::device
