#include "tests/e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"

extern char** environ;

namespace shardline::testing {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
            const std::string& out_path, const std::string& err_path) {
  std::vector<std::string> all = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, "SHARDLINE_NODE") &&
        !absl::StartsWith(*entry, "SHARDLINE_COORDINATOR")) {
      all.emplace_back(*entry);
    }
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_path.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  posix_spawn_file_actions_addopen(&actions, 2, err_path.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                                Pointers(all).data());
  posix_spawn_file_actions_destroy(&actions);
  SL_CHECK(error == 0, "cannot start ", argv[0]);
  return pid;
}

int ExitCode(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

Process::Process(const Options& options)
    : pid_(Spawn(options.argv, options.environment, options.output_path, options.output_path)),
      pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0))) {
  SL_CHECK(pidfd_ >= 0);
}

Process::~Process() {
  if (!reaped_) {
    Signal(SIGKILL);
    Signal(SIGCONT);
    Wait(absl::InfiniteDuration());
  }
  close(pidfd_);
}

void Process::Signal(int signal) {
  if (!reaped_) kill(pid_, signal);
}

int Process::Wait(absl::Duration timeout) {
  if (reaped_) return exit_code_;
  pollfd ended = {.fd = pidfd_, .events = POLLIN, .revents = 0};
  const int timeout_ms = timeout == absl::InfiniteDuration()
                             ? -1
                             : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(&ended, 1, timeout_ms) <= 0) return -1;
  int status = 0;
  SL_CHECK(waitpid(pid_, &status, 0) == pid_);
  reaped_ = true;
  exit_code_ = ExitCode(status);
  return exit_code_;
}

CommandResult RunCommand(const std::vector<std::string>& argv, absl::Duration timeout,
                         const std::vector<std::string>& environment) {
  const std::string directory = MakeTestDirectory();
  const std::string out_path = directory + "/out";
  const std::string err_path = directory + "/err";
  const pid_t pid = Spawn(argv, environment, out_path, err_path);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd ended = {.fd = pidfd, .events = POLLIN, .revents = 0};
  const bool in_time = poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
  if (!in_time) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  close(pidfd);
  CommandResult result = {.exit_code = in_time ? ExitCode(status) : -1,
                          .out = ReadFile(out_path),
                          .err = ReadFile(err_path)};
  std::filesystem::remove_all(directory);
  return result;
}

AddressPipe::AddressPipe(const std::string& directory, const std::string& name)
    : path_(absl::StrCat(directory, "/", name)) {
  unlink(path_.c_str());
  SL_CHECK(mkfifo(path_.c_str(), 0600) == 0);
  fd_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);  // RDWR: never an early end of file.
  SL_CHECK(fd_ >= 0);
}

AddressPipe::~AddressPipe() {
  close(fd_);
  unlink(path_.c_str());
}

std::string AddressPipe::Read(absl::Duration timeout) {
  pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return {};
  char bytes[256];
  const ssize_t count = read(fd_, bytes, sizeof(bytes));
  if (count <= 0) return {};
  const std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(bytes, static_cast<size_t>(count)), '\n');
  return lines.front();
}

std::string BinaryPath(const std::string& name) { return absl::StrCat(SL_BINARY_DIR, "/", name); }

std::string MakeTestDirectory() {
  std::string path = (std::filesystem::temp_directory_path() / "shardline-test-XXXXXX").string();
  SL_CHECK(mkdtemp(path.data()) != nullptr);
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace shardline::testing
