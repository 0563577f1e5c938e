#include "coordinator/gateway/http_parser.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

using Refusal = HttpParser::Refusal;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Nothing for a broken escape and for NUL, which no name of ours holds.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    decoded.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return decoded;
}

// What is wrong with the bytes of a head, as far as they are there; `from` were looked at before.
// Beast is kinder: it takes folded lines and, in a value, much else.
std::string_view FaultOfHead(std::string_view head, size_t from) {
  for (size_t i = from; i < head.size(); ++i) {
    const char c = head[i];
    if (c == '\0') return "a NUL in the head";
    if (c == '\n' && (i == 0 || head[i - 1] != '\r')) return "a line that does not end with CRLF";
    if (i == 0) continue;
    if (head[i - 1] == '\r' && c != '\n') return "a line that does not end with CRLF";
    if (head[i - 1] == '\n' && (c == ' ' || c == '\t')) return "a folded header line";
  }
  return {};
}

Refusal TooLong(size_t body_bytes_max) {
  return {413, absl::StrCat("a body of more than ", body_bytes_max, " bytes")};
}

// Collects the head of a request. Beast calls back once per thing found.
class HeadGrammar : public http::basic_parser<true> {
 public:
  explicit HeadGrammar(size_t body_bytes_max) {
    body_limit(body_bytes_max);
    header_limit(UINT32_MAX);  // HttpParser's, which sees the bytes first.
  }

  HttpRequest& request() { return request_; }
  const std::optional<Refusal>& refusal() const { return refusal_; }
  bool is_http11() const { return is_http11_; }
  bool expects_continue() const { return expects_continue_; }

 private:
  void Refuse(int status, std::string reason, beast::error_code& ec) {
    if (!refusal_) refusal_ = Refusal{.status = status, .reason = std::move(reason)};
    ec = http::error::bad_field;
  }

  void on_request_impl(http::verb, beast::string_view method, beast::string_view target,
                       int version, beast::error_code& ec) override {
    is_http11_ = version == 11;
    request_.method = std::string(method);
    std::string_view path(target.data(), target.size());
    // The form meant for a proxy: "http://host/path".
    if (const size_t scheme = path.find("://");
        scheme != std::string_view::npos && scheme < path.find('/')) {
      const size_t slash = path.find('/', scheme + 3);
      path = slash == std::string_view::npos ? "/" : path.substr(slash);
    }
    const size_t question = path.find('?');
    if (question != std::string_view::npos) request_.query = path.substr(question + 1);
    std::optional<std::string> decoded = PercentDecoded(path.substr(0, question));
    if (!decoded) return Refuse(400, "a broken percent escape in the path", ec);
    if (!decoded->starts_with('/') && *decoded != "*") {
      return Refuse(400, "a request target that is no path", ec);
    }
    request_.path = *std::move(decoded);
  }

  void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}

  void on_field_impl(http::field, beast::string_view name, beast::string_view value,
                     beast::error_code&) override {
    request_.headers.emplace_back(
        absl::AsciiStrToLower(absl::string_view(name.data(), name.size())), std::string(value));
  }

  void on_header_impl(beast::error_code& ec) override {
    size_t host_count = 0;
    size_t length_count = 0;
    for (const auto& [name, value] : request_.headers) {
      if (name == "host") ++host_count;
      if (name == "content-length") ++length_count;
      if (name == "expect" && is_http11_ && absl::EqualsIgnoreCase(value, "100-continue")) {
        expects_continue_ = true;
      }
      if (name != "transfer-encoding") continue;
      if (!absl::EqualsIgnoreCase(value, "chunked") || !is_http11_) {
        return Refuse(400, "a transfer encoding that is not 'chunked'", ec);
      }
    }
    if (host_count > 1 || (host_count == 0 && is_http11_)) {
      return Refuse(400, "there must be one Host header", ec);
    }
    if (length_count > 1) return Refuse(400, "two Content-Length headers", ec);
  }

  // The body is not Beast's: see ChunkReader.
  void on_body_init_impl(const boost::optional<uint64_t>&, beast::error_code&) override {}
  size_t on_body_impl(beast::string_view, beast::error_code&) override { return 0; }
  void on_chunk_header_impl(uint64_t, beast::string_view, beast::error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, beast::string_view, beast::error_code&) override { return 0; }
  void on_finish_impl(beast::error_code&) override {}

  HttpRequest request_;
  bool is_http11_ = false;
  bool expects_continue_ = false;
  std::optional<Refusal> refusal_;
};

// Puts a chunked body together. Ours, because what Beast makes of a chunk's line depends on how
// much of the next it sees. Extensions and trailers are read over: no field comes in by the back
// door.
class ChunkReader {
 public:
  // Takes bytes from the front of `input`, from `at` on, and appends to `body`.
  std::optional<Refusal> Feed(std::string_view input, size_t& at, std::string& body,
                              const HttpParserLimits& limits);
  bool is_done() const { return part_ == Part::kDone; }

 private:
  enum class Part { kSize, kBytes, kEndOfBytes, kTrailer, kDone };

  std::optional<Refusal> OnSize(std::string_view line, size_t room, size_t body_bytes_max);

  Part part_ = Part::kSize;
  size_t left_ = 0;           // Of the chunk.
  size_t trailer_bytes_ = 0;  // So far.
};

std::optional<Refusal> ChunkReader::Feed(std::string_view input, size_t& at, std::string& body,
                                         const HttpParserLimits& limits) {
  while (at < input.size() && part_ != Part::kDone) {
    if (part_ == Part::kBytes) {
      const std::string_view piece = input.substr(at, left_);
      body += piece;
      at += piece.size();
      left_ -= piece.size();
      if (left_ == 0) part_ = Part::kEndOfBytes;
      continue;
    }
    const size_t end = input.find('\n', at);
    const size_t line_bytes = (end == std::string_view::npos ? input.size() : end + 1) - at;
    const size_t line_bytes_max = part_ == Part::kEndOfBytes ? 2 : limits.header_bytes_max;
    if (line_bytes + trailer_bytes_ > line_bytes_max) {
      if (part_ == Part::kEndOfBytes) return Refusal{400, "a chunk that is longer than its size"};
      return Refusal{431, absl::StrCat("a chunk line or trailers of more than ",
                                       limits.header_bytes_max, " bytes")};
    }
    if (end == std::string_view::npos) return std::nullopt;
    if (line_bytes < 2 || input[end - 1] != '\r') {
      return Refusal{400, "a chunk line that does not end with CRLF"};
    }
    const std::string_view line = input.substr(at, line_bytes - 2);
    at = end + 1;
    if (part_ == Part::kSize) {
      // At most what can be multiplied once more.
      const size_t room = std::min(limits.body_bytes_max - body.size(), SIZE_MAX / 16);
      if (auto refusal = OnSize(line, room, limits.body_bytes_max)) return refusal;
    } else if (part_ == Part::kEndOfBytes) {
      part_ = Part::kSize;
    } else if (line.empty()) {
      part_ = Part::kDone;
    } else {
      trailer_bytes_ += line_bytes;
    }
  }
  return std::nullopt;
}

std::optional<Refusal> ChunkReader::OnSize(std::string_view line, size_t room,
                                           size_t body_bytes_max) {
  size_t digits = 0;
  uint64_t size = 0;
  for (; digits < line.size() && HexDigit(line[digits]) >= 0; ++digits) {
    if (size > room) break;
    size = size * 16 + static_cast<uint64_t>(HexDigit(line[digits]));
  }
  const std::string_view rest = line.substr(digits);
  if (digits == 0) return Refusal{400, "a chunk without a size"};
  if (size > room) return TooLong(body_bytes_max);
  const bool is_extension = rest.empty() || rest[0] == ';' || rest[0] == ' ' || rest[0] == '\t';
  const bool is_text = std::none_of(rest.begin(), rest.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
  if (!is_extension || !is_text) return Refusal{400, "a chunk size that is no number"};
  left_ = size;
  part_ = size > 0 ? Part::kBytes : Part::kTrailer;
  return std::nullopt;
}

// Whether the request line names a version of the protocol, if none that is spoken here.
bool NamesAVersion(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\r'));
  const size_t at = line.rfind(" HTTP/");
  if (at == std::string_view::npos || line.size() - at != 9) return false;
  return absl::ascii_isdigit(line[at + 6]) && line[at + 7] == '.' &&
         absl::ascii_isdigit(line[at + 8]);
}

Refusal RefusalOf(const beast::error_code& ec, std::string_view head,
                  const HttpParserLimits& limits) {
  if (ec == http::error::body_limit) return TooLong(limits.body_bytes_max);
  if (ec == http::error::bad_version && NamesAVersion(head)) {
    return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  }
  return {400, absl::StrCat("not HTTP: ", ec.message())};
}

}  // namespace

struct HttpParser::Impl {
  explicit Impl(const HttpParserLimits& parser_limits)
      : limits(parser_limits), grammar(parser_limits.body_bytes_max) {}

  State Refuse(Refusal why) {
    refusal = std::move(why);
    return state = State::kRefused;
  }
  State FeedHead(std::string& input);
  State FeedBody(std::string& input);

  const HttpParserLimits limits;
  State state = State::kBlank;
  size_t seen_bytes = 0;  // Of an unfinished head: looked at already.
  HeadGrammar grammar;
  uint64_t body_left = 0;  // Unless it is chunked.
  ChunkReader chunks;
  Refusal refusal;
};

// The head goes to Beast only when it is whole, so that what Beast would overlook is seen first.
HttpParser::State HttpParser::Impl::FeedHead(std::string& input) {
  if (state == State::kBlank) {
    size_t blank = 0;
    while (input.compare(blank, 2, "\r\n") == 0) blank += 2;
    input.erase(0, blank);
    if (input.empty() || input == "\r") return state;
    state = State::kHead;
  }
  const size_t end = input.find("\r\n\r\n", seen_bytes < 3 ? 0 : seen_bytes - 3);
  const size_t head_bytes = end == std::string::npos ? input.size() : end + 4;
  // Not beyond the limit, so that the answer does not depend on how much was read at once.
  const size_t bytes = std::min(head_bytes, limits.header_bytes_max + 1);
  if (const std::string_view fault = FaultOfHead({input.data(), bytes}, seen_bytes);
      !fault.empty()) {
    return Refuse({400, std::string(fault)});
  }
  if (bytes > limits.header_bytes_max) {
    return Refuse({431, absl::StrCat("a head of more than ", limits.header_bytes_max, " bytes")});
  }
  seen_bytes = bytes;
  if (end == std::string::npos) return state;

  beast::error_code ec;
  grammar.put(boost::asio::buffer(input.data(), head_bytes), ec);
  if (ec && ec != http::error::need_more) {
    const std::string_view head(input.data(), head_bytes);
    return Refuse(grammar.refusal().value_or(RefusalOf(ec, head, limits)));
  }
  // The head is whole, yet Beast wants more of it: the line or a field breaks off.
  if (!grammar.is_header_done()) return Refuse({400, "not HTTP: a head that breaks off"});
  input.erase(0, head_bytes);
  body_left = grammar.content_length().value_or(0);
  return FeedBody(input);
}

HttpParser::State HttpParser::Impl::FeedBody(std::string& input) {
  size_t used = 0;
  if (grammar.chunked()) {
    if (auto fault = chunks.Feed(input, used, grammar.request().body, limits)) {
      return Refuse(*std::move(fault));
    }
  } else {
    used = std::min<uint64_t>(input.size(), body_left);
    grammar.request().body.append(input, 0, used);
    body_left -= used;
  }
  input.erase(0, used);
  const bool is_done = grammar.chunked() ? chunks.is_done() : body_left == 0;
  return state = is_done ? State::kDone : State::kBody;
}

HttpParser::HttpParser(const HttpParserLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;
HttpParser::HttpParser(HttpParser&&) noexcept = default;
HttpParser& HttpParser::operator=(HttpParser&&) noexcept = default;

HttpParser::State HttpParser::Feed(std::string& input) {
  switch (impl_->state) {
    case State::kBlank:
    case State::kHead:
      return impl_->FeedHead(input);
    case State::kBody:
      return impl_->FeedBody(input);
    case State::kDone:
    case State::kRefused:
      break;
  }
  return impl_->state;
}

bool HttpParser::expects_continue() const { return impl_->grammar.expects_continue(); }
bool HttpParser::is_http11() const { return impl_->grammar.is_http11(); }
bool HttpParser::keep_alive() const { return impl_->grammar.keep_alive(); }

const HttpParser::Refusal& HttpParser::refusal() const { return impl_->refusal; }

HttpRequest HttpParser::TakeRequest() {
  SL_CHECK(impl_->state == State::kDone);
  return std::move(impl_->grammar.request());
}

}  // namespace shardline
