// Runs the program itself, as a user does, in a folder of the test's own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {

struct Outcome {
  int exit_status;
  std::string out;
  std::string err;
};

class ProgramFixture : public ::testing::Test {
 protected:
  ProgramFixture() : folder_(absl::StrCat(::testing::TempDir(), "/ridgeline_program_test_", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ProgramFixture() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

  // `arguments` as a shell reads them.
  Outcome RunAgainst(const std::string& address, const std::string& arguments) const {
    const std::string command = absl::StrCat(RIDGELINE_PROGRAM, " --address=", address, " ", arguments, " >", Path("stdout"),
                                             " 2>", Path("stderr"), " </dev/null");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Content("stdout"), Content("stderr")};
  }

  std::string Content(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::string folder_;
};

}  // namespace ridgeline::cli
