#pragma once

// A child process of a test: started, signalled, reaped, its output kept.

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace shardline::testing {

class Process {
 public:
  struct Options {
    std::vector<std::string> argv;         // argv[0] is the path of the binary.
    std::vector<std::string> environment;  // "NAME=value", added to the test's own.
    std::string output_path;               // stdout and stderr are appended here.
  };

  explicit Process(const Options& options);
  ~Process();  // Kills what still runs.

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);

  // Waits for the end. Exit code, or 128 + signal; -1 when it still runs after `timeout`.
  int Wait(absl::Duration timeout);

  // Whether it still runs; does not wait.
  bool Running() { return Wait(absl::ZeroDuration()) == -1; }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool reaped_ = false;
  int exit_code_ = -1;
};

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs a command to its end, both streams captured. Exit code -1: it did not end in `timeout`.
CommandResult RunCommand(const std::vector<std::string>& argv,
                         absl::Duration timeout = absl::Seconds(60),
                         const std::vector<std::string>& environment = {});

// A named pipe in `directory`, through which a child tells its address once.
class AddressPipe {
 public:
  explicit AddressPipe(const std::string& directory, const std::string& name);
  ~AddressPipe();

  const std::string& path() const { return path_; }

  // The first line written to the pipe; empty when none came in `timeout`.
  std::string Read(absl::Duration timeout);

 private:
  std::string path_;
  int fd_ = -1;
};

// Folder of the binaries under test, and a fresh folder for a test's files.
std::string BinaryPath(const std::string& name);
std::string MakeTestDirectory();
std::string ReadFile(const std::string& path);

}  // namespace shardline::testing
