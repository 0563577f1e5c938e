#include "tests/e2e/http_calls.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shardline::testing {
namespace {

void TakeEvent(const HttpJson& event, StreamAnswer& answer) {
  answer.events.push_back(event);
  if (event.contains("error")) {
    const HttpJson& code = event["error"]["code"];
    answer.error_code = code.is_string() ? code.get<std::string>() : "none";
    return;
  }
  for (const HttpJson& choice : event.value("choices", HttpJson::array())) {
    if (choice.value("index", 0) != 0) continue;
    if (choice.contains("text")) answer.text += choice["text"].get<std::string>();
    if (choice.contains("delta")) {
      const HttpJson content = choice["delta"].value("content", HttpJson());
      if (content.is_string()) answer.text += content.get<std::string>();
    }
    const HttpJson reason = choice.value("finish_reason", HttpJson());
    if (reason.is_string()) answer.finish_reason = reason.get<std::string>();
  }
}

// False: the caller has seen enough.
bool TakeLine(std::string_view line, StreamAnswer& answer, const OnStreamEvent& on_event) {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kId = "id: ";
  if (line.starts_with(':')) ++answer.comments;
  if (line.starts_with(kId)) answer.ids.emplace_back(line.substr(kId.size()));
  if (!line.starts_with(kData)) return true;
  const std::string_view data = line.substr(kData.size());
  if (data == "[DONE]") {
    answer.done = true;
    return true;
  }
  const HttpJson event = HttpJson::parse(data, nullptr, /*allow_exceptions=*/false);
  TakeEvent(event, answer);
  return !on_event || on_event(answer);
}

}  // namespace

std::string RequestBytes(std::string_view method, std::string_view path, const std::string& body,
                         const HttpFields& headers) {
  std::string bytes =
      absl::StrCat(std::string(method), " ", std::string(path), " HTTP/1.1\r\nHost: localhost\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&bytes, name, ": ", value, "\r\n");
  if (method == "POST") {
    absl::StrAppend(&bytes, "Content-Type: application/json\r\nContent-Length: ", body.size(),
                    "\r\n");
  }
  return absl::StrCat(bytes, "\r\n", body);
}

RawAnswer Post(int port, std::string_view path, const HttpJson& body, const HttpFields& headers) {
  RawHttp connection = RawHttp::Connect(port);
  if (!connection.Send(RequestBytes("POST", path, body.dump(), headers))) return {};
  return connection.ReadAnswer();
}

RawAnswer Get(int port, std::string_view path, const HttpFields& headers) {
  RawHttp connection = RawHttp::Connect(port);
  if (!connection.Send(RequestBytes("GET", path, "", headers))) return {};
  return connection.ReadAnswer();
}

HttpJson JsonOf(const RawAnswer& answer) {
  HttpJson json = HttpJson::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? HttpJson() : json;
}

StreamAnswer ReadStream(RawHttp& connection, const OnStreamEvent& on_event) {
  StreamAnswer answer;
  RawAnswer head = connection.ReadHead();
  answer.status = head.status;
  answer.headers = head.headers;
  if (!head.headers.contains("transfer-encoding")) {
    size_t length = 0;
    if (!absl::SimpleAtoi(head.headers["content-length"], &length)) return answer;
    while (answer.body.size() < length) {
      const std::string more = connection.Read(length - answer.body.size());
      if (more.empty()) return answer;
      answer.body += more;
    }
    answer.is_whole = true;
    return answer;
  }
  std::string text;
  while (std::optional<std::string> chunk = connection.ReadChunk()) {
    if (chunk->empty()) {
      answer.is_whole = true;
      break;
    }
    text += *chunk;
    size_t end = 0;
    while ((end = text.find('\n')) != text.npos) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (!TakeLine(line, answer, on_event)) return answer;
    }
  }
  return answer;
}

StreamAnswer Stream(int port, std::string_view path, HttpJson body, const HttpFields& headers,
                    const OnStreamEvent& on_event) {
  body["stream"] = true;
  RawHttp connection = RawHttp::Connect(port);
  if (!connection.Send(RequestBytes("POST", path, body.dump(), headers))) return {};
  return ReadStream(connection, on_event);
}

}  // namespace shardline::testing
