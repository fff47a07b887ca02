// A disk that is full, as far as this process and those that it starts can tell.
#pragma once

#include <sys/resource.h>

namespace ridgeline::support {

// Files can't be written beyond so many bytes for as long as this lives. Who tries gets SIGXFSZ, which ends a process that does
// not ignore it.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_;
};

}  // namespace ridgeline::support
