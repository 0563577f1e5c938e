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

// Collects one request. Beast calls back once per thing found.
class RequestGrammar : public http::basic_parser<true> {
 public:
  explicit RequestGrammar(size_t body_bytes_max) {
    eager(true);
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
    if (is_head_whole_) return;  // A trailer: no field may come in by the back door.
    request_.headers.emplace_back(
        absl::AsciiStrToLower(absl::string_view(name.data(), name.size())), std::string(value));
  }

  void on_header_impl(beast::error_code& ec) override {
    is_head_whole_ = true;
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

  void on_body_init_impl(const boost::optional<uint64_t>&, beast::error_code&) override {}

  size_t on_body_impl(beast::string_view piece, beast::error_code&) override {
    request_.body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_chunk_header_impl(uint64_t, beast::string_view, beast::error_code&) override {}

  size_t on_chunk_body_impl(uint64_t, beast::string_view piece, beast::error_code&) override {
    request_.body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_finish_impl(beast::error_code&) override {}

  HttpRequest request_;
  bool is_http11_ = false;
  bool is_head_whole_ = false;
  bool expects_continue_ = false;
  std::optional<Refusal> refusal_;
};

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
  if (ec == http::error::body_limit) {
    return {413, absl::StrCat("a body of more than ", limits.body_bytes_max, " bytes")};
  }
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
  State FeedGrammar(std::string& input, size_t head_bytes);

  const HttpParserLimits limits;
  State state = State::kBlank;
  size_t seen_bytes = 0;  // Of an unfinished head: looked at already.
  RequestGrammar grammar;
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
  const std::string_view head =
      std::string_view(input).substr(0, end == std::string::npos ? std::string::npos : end + 4);
  if (const std::string_view fault = FaultOfHead(head, seen_bytes); !fault.empty()) {
    return Refuse({400, std::string(fault)});
  }
  if (head.size() > limits.header_bytes_max) {
    return Refuse({431, absl::StrCat("a head of more than ", limits.header_bytes_max, " bytes")});
  }
  seen_bytes = head.size();
  if (end == std::string::npos) return state;
  return FeedGrammar(input, head.size());
}

HttpParser::State HttpParser::Impl::FeedGrammar(std::string& input, size_t head_bytes) {
  beast::error_code ec;
  const size_t used = grammar.put(boost::asio::buffer(input), ec);
  if (ec && ec != http::error::need_more) {
    return Refuse(grammar.refusal().value_or(
        RefusalOf(ec, std::string_view(input).substr(0, head_bytes), limits)));
  }
  SL_CHECK(used >= head_bytes);
  input.erase(0, used);
  if (grammar.is_done()) return state = State::kDone;
  state = State::kBody;
  if (input.size() > limits.header_bytes_max) {  // Of a body, only these lines are left lying.
    return Refuse({431, absl::StrCat("a chunk line or trailers of more than ",
                                     limits.header_bytes_max, " bytes")});
  }
  return state;
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
      return input.empty() ? State::kBody : impl_->FeedGrammar(input, 0);
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
