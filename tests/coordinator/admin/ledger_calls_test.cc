// The ledger over gRPC: lists, verdicts and exports that wait for their reader.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/task_thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/admin.grpc.pb.h"
#include "tests/support/memory_store.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::MemoryStore;
using ::testing::HasSubstr;

class StandingClock final : public Clock {
 public:
  Instant Now() const override { return Instant(); }
};

// A coordinator that is nothing but its store's thread.
class LedgerAlone final : public AdminEvents {
 public:
  LedgerAlone() : store_(&clock_) { term_ = *store_.BeginTerm(); }

  void WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) override {
    use(ClusterView());
  }
  void OnLoadModel(LoadStreamId, v1::LoadModelRequest) override {}
  void OnBeginLoad(v1::LoadModelRequest,
                   absl::AnyInvocable<void(const absl::StatusOr<std::string>&)> done) override {
    done(std::string());
  }
  void OnUnloadModel(const std::string&, absl::AnyInvocable<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void OnPreviewModel(const v1::PreviewModelRequest&, PreviewReply done) override {
    done(v1::ModelPreview());
  }
  void OnCordonNode(const NodeId&, bool, NodeReply done) override { done(v1::NodeSummary()); }
  void OnDrainNode(const v1::DrainNodeRequest&, NodeReply done) override {
    done(v1::NodeSummary());
  }
  void OnRemoveNode(const NodeId&, NodeReply done) override { done(v1::NodeSummary()); }
  void OnListSessions(
      absl::AnyInvocable<void(const absl::StatusOr<v1::SessionList>&)> done) override {
    v1::SessionList list;
    list.add_sessions()->set_session(7);
    done(list);
  }
  void OnCancelSession(
      SessionId session, const std::string& reason,
      absl::AnyInvocable<void(const absl::StatusOr<v1::CancelSessionReply>&)> done) override {
    if (session != SessionId(7)) return done(absl::NotFoundError("no such session"));
    v1::CancelSessionReply reply;
    reply.set_outcome(reason);
    done(reply);
  }
  void WithStore(absl::AnyInvocable<void(const absl::StatusOr<Store*>&)> use) override {
    ++reads;
    if (refuse) return use(MakeFailure(FailureKind::kOverloaded, "busy"));
    thread_.Post([this, use = std::move(use)]() mutable { use(&store_); });
  }

  void AddRecords(int count) {
    for (int i = 0; i < count; ++i) {
      const AttemptKey key =
          *store_.CreateAndGrant(term_, {.session = {}, .route = "a:0-9", .previous = {}});
      (void)*store_.FinishAttempt(
          term_, key,
          {.state = i % 2 == 0 ? AttemptState::kCompleted : AttemptState::kFailed,
           .tokens = 3,
           .work_tokens = 5},
          {});
    }
  }

  std::atomic<int> reads{0};
  std::atomic<bool> refuse{false};

 private:
  const StandingClock clock_;
  MemoryStore store_;
  Term term_;
  TaskThread thread_;
};

class LedgerCallsTest : public ::testing::Test {
 protected:
  LedgerCallsTest() : service_(&events_) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.service());
    server_ = builder.BuildAndStart();
    stub_ = v1::Admin::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~LedgerCallsTest() override { server_->Shutdown(GrpcDeadline(absl::Seconds(1))); }

  LedgerAlone events_;
  AdminService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(LedgerCallsTest, AListIsAPageAndSaysHowManyThereAre) {
  events_.AddRecords(150);
  v1::ListRecordsRequest request;
  v1::RecordList reply;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ListRecords(&context, request, &reply).ok());
  }
  EXPECT_EQ(reply.records_size(), 100);
  EXPECT_EQ(reply.total(), 150u);
  EXPECT_EQ(reply.records(0).billed_tokens(), 3u);
  EXPECT_EQ(reply.records(1).billed_tokens(), 0u);
  EXPECT_EQ(reply.records(0).hash().size(), 64u);
  request.set_state("failed");
  request.set_after(140);
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ListRecords(&context, request, &reply).ok());
  }
  EXPECT_EQ(reply.records_size(), 5);
  EXPECT_EQ(reply.total(), 75u);
}

TEST_F(LedgerCallsTest, AWrongStateIsARefusalThatNamesTheRightOnes) {
  v1::ListRecordsRequest request;
  request.set_state("lost");
  grpc::ClientContext context;
  v1::RecordList reply;
  const absl::Status status = FromGrpcStatus(stub_->ListRecords(&context, request, &reply));
  EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(status.message()), HasSubstr("completed, failed"));
  grpc::ClientContext second;
  const auto reader = stub_->ExportRecords(&second, request);
  v1::LedgerRecord record;
  EXPECT_FALSE(reader->Read(&record));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()), FailsWith(FailureKind::kInvalidRequest));
}

TEST_F(LedgerCallsTest, AnExportGivesEveryRecordOnceInOrder) {
  events_.AddRecords(1000);
  for (const uint32_t limit : {0u, 1u, 256u, 700u}) {
    v1::ListRecordsRequest request;
    request.set_limit(limit);
    grpc::ClientContext context;
    const auto reader = stub_->ExportRecords(&context, request);
    uint64_t count = 0;
    for (v1::LedgerRecord record; reader->Read(&record);) ASSERT_EQ(record.sequence(), ++count);
    EXPECT_THAT(FromGrpcStatus(reader->Finish()), IsOk());
    EXPECT_EQ(count, limit == 0 ? 1000u : limit);
  }
}

TEST_F(LedgerCallsTest, AnExportThatNobodyReadsDoesNotReadTheWholeLedger) {
  events_.AddRecords(100'000);
  events_.reads = 0;
  grpc::ClientContext context;
  const auto reader = stub_->ExportRecords(&context, {});
  v1::LedgerRecord record;
  ASSERT_TRUE(reader->Read(&record));
  // A call that comes later is served meanwhile.
  grpc::ClientContext other;
  v1::LedgerVerdict verdict;
  ASSERT_TRUE(stub_->VerifyLedger(&other, {}, &verdict).ok());
  EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(verdict.records(), 100'000u);
  EXPECT_LT(events_.reads, 390);  // Of 391 pages.
  context.TryCancel();
  while (reader->Read(&record)) {
  }
  EXPECT_EQ(FromGrpcStatus(reader->Finish()).code(), absl::StatusCode::kCancelled);
}

TEST_F(LedgerCallsTest, AStoreThatIsNotThereIsSaid) {
  events_.refuse = true;
  grpc::ClientContext context;
  v1::LedgerVerdict verdict;
  EXPECT_THAT(FromGrpcStatus(stub_->VerifyLedger(&context, {}, &verdict)),
              FailsWith(FailureKind::kOverloaded));
  grpc::ClientContext second;
  const auto reader = stub_->ExportRecords(&second, {});
  v1::LedgerRecord record;
  EXPECT_FALSE(reader->Read(&record));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()), FailsWith(FailureKind::kOverloaded));
}

TEST_F(LedgerCallsTest, SessionsAreListedAndCancelledWithAReason) {
  grpc::ClientContext list_context;
  v1::SessionList list;
  ASSERT_TRUE(stub_->ListSessions(&list_context, {}, &list).ok());
  EXPECT_EQ(list.sessions(0).session(), 7u);

  const auto cancel = [this](uint64_t session, const std::string& reason) {
    v1::CancelSessionRequest request;
    request.set_session(session);
    request.set_reason(reason);
    grpc::ClientContext context;
    v1::CancelSessionReply reply;
    const absl::Status status = FromGrpcStatus(stub_->CancelSession(&context, request, &reply));
    return status.ok() ? absl::StatusOr<std::string>(reply.outcome()) : status;
  };
  EXPECT_EQ(*cancel(7, "because"), "because");
  EXPECT_EQ(*cancel(7, ""), "an operator cancelled it");
  EXPECT_EQ(cancel(8, "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(cancel(0, ""), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(cancel(7, std::string(201, 'x')), FailsWith(FailureKind::kInvalidRequest));
}

}  // namespace
}  // namespace shardline
