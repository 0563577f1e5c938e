// The floor under a hop: a bare gRPC bidi echo between two processes, of messages as large as a
// hop's, with as much compute worked between them as a stage needs.
//
//   grpc_echo BYTES WORK_US LAPS        prints: one_way_us <mean>
//
// A hot echo would be a false floor: cores that idle or stream weights between messages answer
// later. So both ends stream a buffer of WORK_BYTES for WORK_US before they answer, on the thread
// that received the message, which is the least any server could do.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"

extern char** environ;

namespace shardline::bench {
namespace {

constexpr size_t kWorkBytes = size_t{32} << 20;
constexpr char kMethod[] = "/shardline.bench.Echo/Lap";

// Streams a buffer, as a stage streams its weights, until `duration` has passed.
class Worker {
 public:
  Worker() : buffer_(kWorkBytes / sizeof(uint64_t), 1) {}

  void Work(absl::Duration duration) {
    const Instant end = SystemClock()->Now() + duration;
    uint64_t sum = 0;
    do {
      for (size_t i = 0; i < 4096; ++i) sum += buffer_[(position_ + i) % buffer_.size()];
      position_ = (position_ + 4096) % buffer_.size();
    } while (SystemClock()->Now() < end);
    sink_ = sum;
  }

 private:
  std::vector<uint64_t> buffer_;
  size_t position_ = 0;
  volatile uint64_t sink_ = 0;
};

class EchoReactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoReactor(absl::Duration work) : work_(work) { StartRead(&message_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    worker_.Work(work_);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  const absl::Duration work_;
  Worker worker_;
  grpc::ByteBuffer message_;
};

class EchoService final : public grpc::CallbackGenericService {
 public:
  explicit EchoService(absl::Duration work) : work_(work) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new EchoReactor(work_);
  }

 private:
  const absl::Duration work_;
};

class LapReactor final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LapReactor(size_t bytes, absl::Duration work, int laps) : work_(work), laps_(laps) {
    const std::string payload(bytes, 'x');
    const grpc::Slice slice(payload);
    message_ = grpc::ByteBuffer(&slice, 1);
  }

  void Start() {
    StartCall();
    StartLap();
  }
  void OnWriteDone(bool ok) override {
    if (ok) EndHalf();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    overheads_us_.push_back(absl::ToDoubleMicroseconds(SystemClock()->Now() - sent_ - work_));
    worker_.Work(work_);
    EndHalf();
  }
  void OnDone(const grpc::Status&) override { done_.Notify(); }

  // Half of the mean lap outside compute: a cluster's laps are known by their sum, too.
  double OneWayUs() {
    done_.WaitForNotification();
    if (overheads_us_.empty()) return -1;
    return std::accumulate(overheads_us_.begin(), overheads_us_.end(), 0.0) /
           static_cast<double>(overheads_us_.size()) / 2;
  }

 private:
  void StartLap() {
    halves_ = 2;
    sent_ = SystemClock()->Now();
    StartWrite(&message_);
    StartRead(&reply_);
  }

  // A lap is over when its write and its read are; they may end in any order.
  void EndHalf() {
    if (--halves_ != 0) return;
    if (static_cast<int>(overheads_us_.size()) == laps_) {
      StartWritesDone();
    } else {
      StartLap();
    }
  }

  const absl::Duration work_;
  const int laps_;
  std::atomic<int> halves_ = 0;
  Worker worker_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer reply_;
  Instant sent_;
  std::vector<double> overheads_us_;
  absl::Notification done_;
};

// Prints its port and serves until its input ends.
int Serve(absl::Duration work) {
  EchoService service(work);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("%d\n", port);
  std::fflush(stdout);
  char byte = 0;
  while (read(0, &byte, 1) > 0) {
  }
  server->Shutdown();
  return 0;
}

int Measure(const char* self, size_t bytes, const std::string& work_us, int laps) {
  int to_child[2];
  int from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) return 1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
  for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) {
    posix_spawn_file_actions_addclose(&actions, fd);
  }
  std::vector<std::string> argv = {self, "--serve", work_us};
  char* const pointers[] = {argv[0].data(), argv[1].data(), argv[2].data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, self, &actions, nullptr, pointers, environ) != 0) return 1;
  char port[16] = {};
  if (read(from_child[0], port, sizeof(port) - 1) <= 0) return 1;

  double work = 0;
  if (!absl::SimpleAtod(work_us, &work)) return 2;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", std::atoi(port)), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  LapReactor reactor(bytes, absl::Microseconds(work), laps);
  stub.PrepareBidiStreamingCall(&context, kMethod, grpc::StubOptions(), &reactor);
  reactor.Start();
  const double one_way_us = reactor.OneWayUs();
  close(to_child[1]);
  waitpid(child, nullptr, 0);
  std::printf("one_way_us %.1f\n", one_way_us);
  return one_way_us < 0 ? 1 : 0;
}

int Main(int argc, char** argv) {
  double work_us = 0;
  if (argc == 3 && std::strcmp(argv[1], "--serve") == 0 && absl::SimpleAtod(argv[2], &work_us)) {
    return Serve(absl::Microseconds(work_us));
  }
  int bytes = 0;
  int laps = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[1], &bytes) || !absl::SimpleAtod(argv[2], &work_us) ||
      !absl::SimpleAtoi(argv[3], &laps) || bytes < 1 || laps < 1 || work_us < 0) {
    std::fprintf(stderr, "usage: grpc_echo BYTES WORK_US LAPS   e.g. grpc_echo 2304 1500 200\n");
    return 2;
  }
  return Measure(argv[0], static_cast<size_t>(bytes), argv[2], laps);
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) { return shardline::bench::Main(argc, argv); }
