#include "coordinator/gateway/state_feed.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/failure.h"
#include "coordinator/gateway/event_stream.h"
#include "coordinator/gateway/rate_window.h"

namespace shardline {
namespace {

constexpr size_t kMomentWaitersMax = 256;

absl::Status Stopping() {
  return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(1)},
                     "the coordinator is shutting down");
}

struct Reader {
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<std::atomic<bool>> gone;
  EventStream stream;
};

HttpResponse StreamHead() {
  HttpResponse head;
  head.headers.emplace_back("content-type", "text/event-stream; charset=utf-8");
  head.headers.emplace_back("cache-control", "no-store");
  head.headers.emplace_back("x-accel-buffering", "no");
  return head;
}

}  // namespace

// Held by the answers under way, too, which may come after the feed has gone.
struct StateFeed::Core : std::enable_shared_from_this<Core> {
  Core(AdminEvents* admin, const EventLog* event_log, const Clock* system_clock)
      : events(admin), log(event_log), clock(system_clock) {}

  void Run() ABSL_LOCKS_EXCLUDED(mu);
  void Ask();
  void Take(absl::StatusOr<ClusterMoment> moment) ABSL_LOCKS_EXCLUDED(mu);
  void Serve(absl::StatusOr<ClusterMoment> moment, Instant asked, std::vector<MomentReply> waiters)
      ABSL_LOCKS_EXCLUDED(mu);
  void WriteToReaders();

  Instant NextWake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return stopped || answer.has_value() || !joining.empty() || (!asked_at && !waiting.empty());
  }

  AdminEvents* const events;
  const EventLog* const log;
  const Clock* const clock;

  absl::Mutex mu;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  std::optional<Instant> asked_at ABSL_GUARDED_BY(mu);  // While the loop owes an answer.
  Instant last_asked ABSL_GUARDED_BY(mu);
  std::optional<absl::StatusOr<ClusterMoment>> answer ABSL_GUARDED_BY(mu);
  std::vector<MomentReply> waiting ABSL_GUARDED_BY(mu);  // For the next question,
  std::vector<MomentReply> asking ABSL_GUARDED_BY(mu);   // and for the one under way.
  std::shared_ptr<const absl::StatusOr<ClusterMoment>> newest ABSL_GUARDED_BY(mu);
  Instant newest_at ABSL_GUARDED_BY(mu);  // When it was asked for.
  std::vector<Reader> joining ABSL_GUARDED_BY(mu);
  size_t reader_count ABSL_GUARDED_BY(mu) = 0;  // Those that join included.

  // Owned by the thread.
  std::vector<Reader> readers;
  RateWindow rate{kRateWindow};
  StateText state;
  std::string stable;

  std::thread thread;
};

// Two questions make one answer, so that one waits at a time.
void StateFeed::Core::Ask() {
  events->WithView([self = shared_from_this()](const absl::StatusOr<ClusterView>& view) {
    if (!view.ok()) return self->Take(view.status());
    ClusterMoment moment{.view = *view};
    self->events->OnListSessions(
        [self, moment = std::move(moment)](const absl::StatusOr<v1::SessionList>& list) mutable {
          if (!list.ok()) return self->Take(list.status());
          moment.sessions = *list;
          self->Take(std::move(moment));
        });
  });
}

void StateFeed::Core::Take(absl::StatusOr<ClusterMoment> moment) {
  absl::MutexLock lock(&mu);
  answer = std::move(moment);
}

Instant StateFeed::Core::NextWake() const {
  const bool watched = reader_count > 0;
  return last_asked + (watched ? kStateInterval : kSampleInterval);
}

void StateFeed::Core::Run() {
  while (true) {
    std::optional<absl::StatusOr<ClusterMoment>> moment;
    std::vector<MomentReply> waiters;
    Instant asked;
    bool ask = false;
    {
      absl::MutexLock lock(&mu);
      mu.AwaitWithTimeout(absl::Condition(this, &Core::HasNews), NextWake() - clock->Now());
      if (stopped) return;
      if (answer.has_value()) {
        moment = std::exchange(answer, std::nullopt);
        waiters = std::exchange(asking, {});
        asked = *std::exchange(asked_at, std::nullopt);
      }
      for (Reader& reader : joining) readers.push_back(std::move(reader));
      joining.clear();
      const Instant now = clock->Now();
      if (!asked_at && (now >= NextWake() || !waiting.empty())) {
        ask = true;
        asking = std::exchange(waiting, {});
        asked_at = now;
        last_asked = now;
      } else if (asked_at && now >= NextWake()) {
        last_asked = now;  // The loop owes an answer: readers are looked after all the same.
      }
    }
    if (ask) Ask();
    if (moment.has_value()) Serve(*std::move(moment), asked, std::move(waiters));
    WriteToReaders();
  }
}

void StateFeed::Core::Serve(absl::StatusOr<ClusterMoment> moment, Instant asked,
                            std::vector<MomentReply> waiters) {
  const Instant now = clock->Now();
  if (moment.ok()) {
    rate.Add(now, moment->view.tokens_delivered);
    moment->tokens_per_s = rate.PerSecond();
    moment->at_unix_ms = absl::ToUnixMillis(absl::Now());  // Wall time: it is for people.
  }
  const auto shared = std::make_shared<const absl::StatusOr<ClusterMoment>>(std::move(moment));
  {
    absl::MutexLock lock(&mu);
    newest = shared;
    newest_at = asked;
  }
  for (MomentReply& use : waiters) use(*shared);
  if (!shared->ok() || readers.empty()) return;
  MomentText text = MomentJson(**shared);
  if (text.stable != stable) ++state.version;
  stable = std::move(text.stable);
  state.json = std::move(text.json);
  state.taken_at = now;
}

void StateFeed::Core::WriteToReaders() {
  const Instant now = clock->Now();
  const bool fresh = !state.json.empty() && now - state.taken_at < kStateSilence;
  const auto is_done = [&](Reader& reader) {
    if (reader.gone->load()) return true;
    if (!fresh) return false;  // An old picture is not sent as a new one.
    std::string piece = reader.stream.Next(now, state, *log);
    if (piece.empty() || reader.exchange->Write(std::move(piece))) return false;
    reader.exchange->Abort();
    return true;
  };
  const auto done = std::remove_if(readers.begin(), readers.end(), is_done);
  const auto count = static_cast<size_t>(readers.end() - done);
  readers.erase(done, readers.end());
  if (count == 0) return;
  absl::MutexLock lock(&mu);
  reader_count -= count;
}

StateFeed::StateFeed(AdminEvents* events, const EventLog* log, const Clock* clock)
    : core_(std::make_shared<Core>(events, log, clock)) {
  core_->thread = std::thread([core = core_.get()] { core->Run(); });
}

StateFeed::~StateFeed() { Stop(); }

void StateFeed::WithMoment(absl::Duration age, MomentReply use) {
  absl::Status refusal;
  std::shared_ptr<const absl::StatusOr<ClusterMoment>> known;
  {
    absl::MutexLock lock(&core_->mu);
    if (core_->stopped) {
      refusal = Stopping();
    } else if (core_->newest != nullptr && core_->clock->Now() - core_->newest_at < age) {
      known = core_->newest;
    } else if (core_->waiting.size() + core_->asking.size() >= kMomentWaitersMax) {
      refusal = MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(1)},
                            "too many wait for the cluster's state");
    } else {
      core_->waiting.push_back(std::move(use));
      return;
    }
  }
  known != nullptr ? use(*known) : use(refusal);
}

absl::Status StateFeed::Watch(std::shared_ptr<HttpExchange> exchange, uint64_t after) {
  auto gone = std::make_shared<std::atomic<bool>>(false);
  {
    absl::MutexLock lock(&core_->mu);
    if (core_->stopped) return Stopping();
    if (core_->reader_count == kEventReadersMax) {
      return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(5)},
                         absl::StrCat(kEventReadersMax, " read the events already"));
    }
    ++core_->reader_count;
  }
  exchange->OnGone([gone] { gone->store(true); });
  exchange->Begin(StreamHead());
  absl::MutexLock lock(&core_->mu);
  if (core_->stopped) {
    exchange->Finish();
  } else {
    core_->joining.push_back({std::move(exchange), std::move(gone), EventStream(after)});
  }
  return absl::OkStatus();
}

absl::Duration StateFeed::LoopSilence() const {
  absl::MutexLock lock(&core_->mu);
  return core_->asked_at ? core_->clock->Now() - *core_->asked_at : absl::ZeroDuration();
}

void StateFeed::Stop() {
  {
    absl::MutexLock lock(&core_->mu);
    core_->stopped = true;
  }
  if (!core_->thread.joinable()) return;
  core_->thread.join();
  std::vector<MomentReply> waiting;
  std::vector<Reader> readers = std::exchange(core_->readers, {});
  {
    absl::MutexLock lock(&core_->mu);
    for (auto* list : {&core_->waiting, &core_->asking}) {
      for (MomentReply& use : *list) waiting.push_back(std::move(use));
      list->clear();
    }
    for (Reader& reader : core_->joining) readers.push_back(std::move(reader));
    core_->joining.clear();
  }
  for (MomentReply& use : waiting) use(Stopping());
  for (Reader& reader : readers) reader.exchange->Finish();
}

}  // namespace shardline
