#include "coordinator/gateway/http_outbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace shardline {
namespace {

struct Reason {
  int status;
  std::string_view text;
};
constexpr Reason kReasons[] = {
    {200, "OK"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string_view ReasonOf(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.text;
  }
  return "Other";
}

bool HasBody(int status) { return status != 204 && status != 304; }

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  for (const std::string_view part : {name, std::string_view(": "), value}) {
    for (const char c : part) out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
  }
  out += "\r\n";
}

}  // namespace

std::string RenderHead(const HttpResponse& response, const HttpHead& head) {
  const std::string_view reason = ReasonOf(response.status);
  std::string out = absl::StrCat("HTTP/1.1 ", response.status, " ",
                                 absl::string_view(reason.data(), reason.size()), "\r\n");
  for (const auto& [name, value] : response.headers) AppendField(out, name, value);
  AppendField(out, "date",
              absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()));
  if (head.is_chunked) {
    AppendField(out, "transfer-encoding", "chunked");
  } else if (head.body_bytes) {
    AppendField(out, "content-length", std::to_string(*head.body_bytes));
  }
  if (!head.keep_alive) {
    AppendField(out, "connection", "close");
  } else if (!head.is_http11) {
    AppendField(out, "connection", "keep-alive");
  }
  return out + "\r\n";
}

HttpOutbox::HttpOutbox(Options options) : options_(std::move(options)) {}

bool HttpOutbox::MustWake() {
  if (is_woken_) return false;
  is_woken_ = true;
  return true;
}

void HttpOutbox::Answer(HttpResponse response) {
  absl::AnyInvocable<void()> dropped;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kWaiting) return;
    state_ = State::kEnded;
    dropped = std::exchange(on_gone_, nullptr);
    const bool keep_alive = options_.keep_alive && !options_.counters->is_stopping;
    HttpHead head = {.keep_alive = keep_alive, .is_http11 = options_.is_http11};
    if (HasBody(response.status)) head.body_bytes = response.body.size();
    queued_ = RenderHead(response, head);
    if (!options_.is_head && HasBody(response.status)) queued_ += response.body;
    end_ = keep_alive ? End::kKeep : End::kClose;
    if (!MustWake()) return;
  }
  options_.wake();
}

void HttpOutbox::Begin(HttpResponse response) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kWaiting) return;
    state_ = State::kStreaming;
    ++options_.counters->streams;
    // Without chunks only the end of the connection says where the answer ends.
    keeps_ = options_.keep_alive && options_.is_http11 && !options_.counters->is_stopping;
    queued_ = RenderHead(
        response,
        {.keep_alive = keeps_, .is_http11 = options_.is_http11, .is_chunked = options_.is_http11});
    AppendPiece(response.body);
    if (!MustWake()) return;
  }
  options_.wake();
}

void HttpOutbox::AppendPiece(std::string_view piece) {
  if (options_.is_head || piece.empty()) return;  // An empty chunk would be the last one.
  const absl::string_view bytes(piece.data(), piece.size());
  if (options_.is_http11) {
    absl::StrAppend(&queued_, absl::Hex(piece.size()), "\r\n", bytes, "\r\n");
  } else {
    absl::StrAppend(&queued_, bytes);
  }
}

bool HttpOutbox::Write(std::string_view piece) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kStreaming || is_gone_ || is_overrun_) return false;
    const size_t waiting = queued_.size() + taken_bytes_;
    if (waiting > 0 && waiting + piece.size() > options_.stream_bytes_max) {
      is_overrun_ = true;
      return false;
    }
    AppendPiece(piece);
    if (queued_.empty() || !MustWake()) return true;
  }
  options_.wake();
  return true;
}

void HttpOutbox::Finish() { EndStream(/*whole=*/true); }
void HttpOutbox::Abort() { EndStream(/*whole=*/false); }

void HttpOutbox::EndStream(bool whole) {
  absl::AnyInvocable<void()> dropped;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kStreaming) return;
    state_ = State::kEnded;
    dropped = std::exchange(on_gone_, nullptr);
    --options_.counters->streams;
    end_ = End::kCut;
    if (whole && !is_overrun_) {
      if (options_.is_http11 && !options_.is_head) queued_ += "0\r\n\r\n";
      end_ = keeps_ ? End::kKeep : End::kClose;
    }
    if (!MustWake()) return;
  }
  options_.wake();
}

void HttpOutbox::LetGo() {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kWaiting) {  // As a stream of nothing that breaks off.
      state_ = State::kStreaming;
      ++options_.counters->streams;
    }
  }
  Abort();
}

void HttpOutbox::OnGone(absl::AnyInvocable<void()> gone) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kEnded) return;
    if (!is_gone_) {
      on_gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

HttpOutbox::Batch HttpOutbox::Take() {
  absl::MutexLock lock(&mu_);
  is_woken_ = false;
  taken_bytes_ += queued_.size();
  return {.bytes = std::exchange(queued_, {}), .end = end_};
}

void HttpOutbox::Sent(size_t bytes) {
  absl::MutexLock lock(&mu_);
  taken_bytes_ -= bytes;
}

void HttpOutbox::Gone() {
  absl::AnyInvocable<void()> gone;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kEnded || is_gone_) return;
    is_gone_ = true;
    ++options_.counters->gone;
    gone = std::exchange(on_gone_, nullptr);
  }
  if (gone) gone();
}

size_t HttpOutbox::bytes() const {
  absl::MutexLock lock(&mu_);
  return queued_.size() + taken_bytes_;
}

}  // namespace shardline
