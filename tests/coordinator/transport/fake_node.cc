#include "tests/coordinator/transport/fake_node.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/version.h"
#include "proto/wire/capability.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/head.grpc.pb.h"
#include "shardline/v1/join.grpc.pb.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline::testing {
namespace {

constexpr absl::Duration kWaitMax = absl::Seconds(10);

}  // namespace

struct FakeNode::State : v1::Shard::Service, v1::Head::Service {
  explicit State(const FakeNodeOptions& o) : options(o) {}

  grpc::Status Open(grpc::ServerContext*, const v1::OpenRequest* request,
                    v1::OpenReply* reply) override {
    absl::MutexLock lock(&mu);
    opens.push_back(*request);
    if (const absl::Status status = Authorise(*request); !status.ok()) return ToGrpcStatus(status);
    if (!open_refusal.ok()) return ToGrpcStatus(open_refusal);
    if (Fenced(request->session(), request->epoch())) {
      return ToGrpcStatus(MakeFailure(FailureKind::kStaleEpoch, "fenced already"));
    }
    reply->set_pages_reserved(1);
    return grpc::Status::OK;
  }

  grpc::Status Fence(grpc::ServerContext*, const v1::FenceRequest* request,
                     v1::FenceReply* reply) override {
    absl::MutexLock lock(&mu);
    if (const absl::Status status = Authorise(*request); !status.ok()) return ToGrpcStatus(status);
    fences.push_back(*request);
    reply->set_pages_released(1);
    return grpc::Status::OK;
  }

  grpc::Status RunAttempt(grpc::ServerContext*, const v1::RunAttemptRequest* request,
                          grpc::ServerWriter<v1::RunAttemptEvent>* writer) override {
    FakeAnswer script;
    {
      absl::MutexLock lock(&mu);
      if (!WasOpenedWith(*request)) {
        return ToGrpcStatus(MakeFailure(FailureKind::kUnauthorised, "not that of its OPEN"));
      }
      script = answer;
      runs.push_back(*request);
    }
    // A probe asks for one token only.
    const size_t count = std::min<size_t>(script.tokens.size(), request->new_tokens_max());
    for (auto i = static_cast<size_t>(request->delivered_tokens_size()); i < count; ++i) {
      v1::RunAttemptEvent event;
      event.mutable_token()->set_index(static_cast<uint32_t>(i));
      event.mutable_token()->set_token(script.tokens[i]);
      for (int k = 0; k < script.alternatives_each; ++k) {
        v1::TokenLogprob& top = *event.mutable_token()->add_top_logprobs();
        top.set_token(k);
        top.set_logprob(-1.0f);
      }
      if (!writer->Write(event)) return grpc::Status::CANCELLED;
    }
    if (script.then_hang && request->new_tokens_max() > 1) {
      absl::MutexLock lock(&mu);
      const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
        return shutdown || Fenced(request->session(), request->epoch());
      };
      mu.Await(absl::Condition(&over));
      return ToGrpcStatus(MakeFailure(FailureKind::kCancelled, "fenced"));
    }
    v1::RunAttemptEvent event;
    event.mutable_end()->set_reason(count < script.tokens.size() ? v1::FINISH_REASON_LENGTH
                                                                 : v1::FINISH_REASON_STOP);
    event.mutable_end()->set_tokens(static_cast<uint32_t>(count));
    writer->Write(event);
    return grpc::Status::OK;
  }

  template <typename Request>
  absl::Status Authorise(const Request& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!key) return MakeFailure(FailureKind::kUnauthorised, "not welcomed yet");
    return CheckCapability(*key, request);
  }

  bool WasOpenedWith(const v1::RunAttemptRequest& run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return std::any_of(opens.begin(), opens.end(), [&](const v1::OpenRequest& open) {
      return open.session() == run.session() && open.epoch() == run.epoch() &&
             SameCapability(open.capability(), run.capability());
    });
  }

  bool Fenced(uint64_t session, uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return std::any_of(fences.begin(), fences.end(), [&](const v1::FenceRequest& fence) {
      return fence.session() == session && fence.epoch() >= epoch;
    });
  }

  const FakeNodeOptions options;
  std::unique_ptr<grpc::Server> server;
  int port = 0;

  // The Join stream, of one life.
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::NodeMessage, v1::CoordinatorMessage>> stream;
  std::thread reader;
  std::thread beater;
  int boots = 0;

  mutable absl::Mutex mu;
  absl::Mutex write_mu;  // One write at a time; taken alone.
  FakeAnswer answer ABSL_GUARDED_BY(mu);
  absl::Status open_refusal ABSL_GUARDED_BY(mu);
  std::vector<v1::OpenRequest> opens ABSL_GUARDED_BY(mu);
  std::vector<v1::RunAttemptRequest> runs ABSL_GUARDED_BY(mu);
  std::vector<v1::FenceRequest> fences ABSL_GUARDED_BY(mu);
  std::vector<v1::LoadShard> loads ABSL_GUARDED_BY(mu);
  absl::Status refusal ABSL_GUARDED_BY(mu);
  v1::ShardReport shard ABSL_GUARDED_BY(mu);
  uint64_t incarnation ABSL_GUARDED_BY(mu) = 0;
  std::optional<CapabilityKey> key ABSL_GUARDED_BY(mu);
  uint64_t term_seen ABSL_GUARDED_BY(mu) = 0;
  std::vector<v1::PeerReport> silent_peers ABSL_GUARDED_BY(mu);
  std::optional<int64_t> drain_ms ABSL_GUARDED_BY(mu);
  int64_t heartbeat_ms ABSL_GUARDED_BY(mu) = 0;
  uint64_t echo ABSL_GUARDED_BY(mu) = 0;
  bool left ABSL_GUARDED_BY(mu) = true;
  bool silent ABSL_GUARDED_BY(mu) = false;
  bool shutdown ABSL_GUARDED_BY(mu) = false;

  void Write(const v1::NodeMessage& message) ABSL_LOCKS_EXCLUDED(write_mu) {
    absl::MutexLock lock(&write_mu);
    stream->Write(message);
  }

  void TakeLoad(const v1::LoadShard& load) ABSL_LOCKS_EXCLUDED(mu) {
    v1::NodeMessage message;
    {
      absl::MutexLock lock(&mu);
      loads.push_back(load);
      shard.Clear();
      shard.set_plan_epoch(load.plan_epoch());
      shard.set_state(v1::SHARD_STATE_LOADED);
      shard.set_bytes_done(100);
      shard.set_bytes_total(100);
      shard.set_numerics_id(options.numerics_id);
      shard.set_kv_pages_total(load.kv_pages());
      *shard.mutable_layers() = load.layers();
      shard.set_model_id(load.model_id());
      shard.mutable_cost()->set_step_us(options.step_us);
      shard.mutable_cost()->set_row_us(options.row_us);
      *message.mutable_shard() = shard;
    }
    Write(message);
  }

  void ReadLoop() ABSL_LOCKS_EXCLUDED(mu) {
    v1::CoordinatorMessage message;
    while (stream->Read(&message)) {
      if (message.has_load()) TakeLoad(message.load());
      absl::MutexLock lock(&mu);
      if (message.has_welcome()) {
        incarnation = message.welcome().incarnation();
        heartbeat_ms = message.welcome().heartbeat_ms();
        key = CapabilityKey::FromBytes(message.welcome().capability_key()).value();
      }
      if (message.has_heartbeat()) echo = message.heartbeat().number();
      if (message.has_refusal()) refusal = FromProto(message.refusal());
      if (message.has_unload()) shard.Clear();
    }
    absl::MutexLock lock(&mu);
    left = true;
  }

  void BeatLoop() ABSL_LOCKS_EXCLUDED(mu) {
    for (uint64_t number = 1;; ++number) {
      v1::NodeMessage message;
      {
        absl::MutexLock lock(&mu);
        const auto may_beat_or_stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
          return left || (heartbeat_ms > 0 && !silent);
        };
        mu.Await(absl::Condition(&may_beat_or_stop));
        mu.AwaitWithTimeout(absl::Condition(&left), absl::Milliseconds(heartbeat_ms));
        if (left) return;
        message.mutable_heartbeat()->set_number(number);
        message.mutable_heartbeat()->set_echo(echo);
        message.mutable_heartbeat()->set_draining(drain_ms.has_value());
        message.mutable_heartbeat()->set_drain_ms(drain_ms.value_or(0));
        for (const v1::PeerReport& peer : silent_peers) {
          *message.mutable_heartbeat()->add_peers() = peer;
        }
      }
      Write(message);
    }
  }
};

FakeNode::FakeNode(const FakeNodeOptions& options) : state_(std::make_unique<State>(options)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &state_->port);
  builder.RegisterService(static_cast<v1::Shard::Service*>(state_.get()));
  builder.RegisterService(static_cast<v1::Head::Service*>(state_.get()));
  state_->server = builder.BuildAndStart();
}

FakeNode::~FakeNode() {
  Leave();
  {
    absl::MutexLock lock(&state_->mu);
    state_->shutdown = true;
  }
  state_->server->Shutdown(GrpcDeadline(absl::ZeroDuration()));
}

void FakeNode::Join(int coordinator_port) { Start(coordinator_port, false); }
void FakeNode::Rejoin(int coordinator_port) { Start(coordinator_port, true); }

void FakeNode::Start(int coordinator_port, bool same_process) {
  v1::NodeMessage message;
  v1::NodeHello& hello = *message.mutable_hello();
  {
    absl::MutexLock lock(&state_->mu);
    if (!same_process) {
      ++state_->boots;
      state_->incarnation = 0;
      state_->shard.Clear();
    }
    hello.set_incarnation(state_->incarnation);
    hello.set_term_seen(state_->term_seen);
    if (state_->shard.plan_epoch() != 0) *hello.mutable_shard() = state_->shard;
    state_->heartbeat_ms = 0;
    state_->echo = 0;
    state_->left = false;
    state_->silent = false;
    state_->refusal = absl::OkStatus();
  }
  hello.mutable_protocol()->set_min(kProtocolVersionMin);
  hello.mutable_protocol()->set_max(kProtocolVersionMax);
  hello.set_node_id(state_->options.id);
  hello.set_version(std::string(kVersion));
  hello.set_address(absl::StrCat("127.0.0.1:", state_->port));
  hello.set_boot_id(absl::StrCat(state_->options.id, "-", state_->boots));
  hello.mutable_capacity()->set_memory_bytes(state_->options.memory_bytes);
  hello.mutable_capacity()->set_threads(1);
  hello.mutable_capacity()->set_read_bytes_per_s(1e10);
  hello.mutable_capacity()->set_int8_ops_per_s(1e10);
  hello.mutable_capacity()->set_backend("cpu");
  hello.mutable_capacity()->set_device("fake");
  hello.mutable_capacity()->set_machine(state_->options.machine);

  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", coordinator_port),
                                                 grpc::InsecureChannelCredentials(), args);
  state_->context = std::make_unique<grpc::ClientContext>();
  state_->stream = v1::Coordinator::NewStub(channel)->Join(state_->context.get());
  state_->Write(message);
  state_->reader = std::thread([state = state_.get()] { state->ReadLoop(); });
  state_->beater = std::thread([state = state_.get()] { state->BeatLoop(); });
}

void FakeNode::Leave() {
  if (state_->stream == nullptr) return;
  state_->context->TryCancel();
  state_->reader.join();
  state_->beater.join();
  state_->stream->Finish();
  state_->stream.reset();
}

uint64_t FakeNode::incarnation() const {
  absl::MutexLock lock(&state_->mu);
  return state_->incarnation;
}

void FakeNode::SetTermSeen(uint64_t term) {
  absl::MutexLock lock(&state_->mu);
  state_->term_seen = term;
}

void FakeNode::SetDraining(int64_t drain_ms) {
  absl::MutexLock lock(&state_->mu);
  state_->drain_ms = drain_ms;
}

void FakeNode::ReportSilent(const std::string& node_id, uint64_t incarnation) {
  absl::MutexLock lock(&state_->mu);
  v1::PeerReport peer;
  peer.set_node_id(node_id);
  peer.set_incarnation(incarnation);
  peer.set_silent_ms(2000);
  state_->silent_peers.push_back(peer);
}

void FakeNode::FallSilent() {
  absl::MutexLock lock(&state_->mu);
  state_->silent = true;
}

void FakeNode::SetAnswer(FakeAnswer answer) {
  absl::MutexLock lock(&state_->mu);
  state_->answer = std::move(answer);
}

void FakeNode::RefuseOpens(absl::Status status) {
  absl::MutexLock lock(&state_->mu);
  state_->open_refusal = std::move(status);
}

std::vector<v1::OpenRequest> FakeNode::opens() const {
  absl::MutexLock lock(&state_->mu);
  return state_->opens;
}

std::vector<v1::RunAttemptRequest> FakeNode::runs() const {
  absl::MutexLock lock(&state_->mu);
  return state_->runs;
}

std::vector<v1::FenceRequest> FakeNode::fences() const {
  absl::MutexLock lock(&state_->mu);
  return state_->fences;
}

std::vector<v1::LoadShard> FakeNode::loads() const {
  absl::MutexLock lock(&state_->mu);
  return state_->loads;
}

absl::Status FakeNode::refusal() const {
  absl::MutexLock lock(&state_->mu);
  return state_->refusal;
}

bool FakeNode::WaitUntil(const std::function<bool(const FakeNode&)>& holds) const {
  // What happens to the node is counted under its mutex; each change is looked at once.
  const Instant until = SystemClock()->Now() + kWaitMax;
  while (SystemClock()->Now() < until) {
    size_t seen = 0;
    {
      absl::MutexLock lock(&state_->mu);
      seen = state_->opens.size() + state_->runs.size() + state_->fences.size() +
             state_->loads.size() + (state_->left ? 1 : 0) + (state_->refusal.ok() ? 0 : 1);
    }
    if (holds(*this)) return true;
    absl::MutexLock lock(&state_->mu);
    const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu) {
      return seen != state_->opens.size() + state_->runs.size() + state_->fences.size() +
                         state_->loads.size() + (state_->left ? 1 : 0) +
                         (state_->refusal.ok() ? 0 : 1);
    };
    state_->mu.AwaitWithTimeout(absl::Condition(&changed), until - SystemClock()->Now());
  }
  return holds(*this);
}

bool WasFenced(const FakeNode& node, uint64_t session) {
  const std::vector<v1::FenceRequest> fences = node.fences();
  return std::any_of(fences.begin(), fences.end(), [session](const v1::FenceRequest& fence) {
    return fence.session() == session;
  });
}

}  // namespace shardline::testing
