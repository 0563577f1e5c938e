#include "coordinator/gateway/tool_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/gateway/api_json.h"

namespace shardline {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr size_t kHeadBytesMax = 4096;  // Of a call, before its arguments.

// Reads the head of a call from text that may end anywhere.
class HeadReader {
 public:
  enum class Verdict { kNeedsMore, kBad, kGood };

  explicit HeadReader(std::string_view text) : rest_(text), size_(text.size()) {}

  // {"name": "f", "arguments": up to the brace that begins them. Other fields with strings may
  // stand before.
  Verdict Read(bool opens_list) {
    if (opens_list && !Take('[')) return Failed();
    if (!Take('{')) return Failed();
    while (true) {
      const std::optional<std::string> key = String();
      if (!key || !Take(':')) return Failed();
      if (*key == "arguments" || *key == "parameters") break;
      std::optional<std::string> value = String();
      if (!value || !Take(',')) return Failed();
      if (*key == "name") name_ = *std::move(value);
    }
    SkipSpace();
    if (rest_.empty()) return Verdict::kNeedsMore;
    return rest_.front() == '{' && name_ ? Verdict::kGood : Verdict::kBad;
  }

  const std::string& name() const { return *name_; }
  size_t consumed() const { return size_ - rest_.size(); }

 private:
  Verdict Failed() const { return rest_.empty() ? Verdict::kNeedsMore : Verdict::kBad; }

  void SkipSpace() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(kSpace))); }

  bool Take(char wanted) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // Nothing, with the rest used up, where the text ends inside it.
  std::optional<std::string> String() {
    SkipSpace();
    if (rest_.empty() || rest_.front() != '"') return std::nullopt;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '\\') {
        ++i;
      } else if (rest_[i] == '"') {
        const ApiResult<Json> text = ParseJson(rest_.substr(0, i + 1));
        if (!text.ok()) return std::nullopt;
        rest_.remove_prefix(i + 1);
        return text->get<std::string>();
      }
    }
    rest_ = {};
    return std::nullopt;
  }

  std::string_view rest_;
  const size_t size_;
  std::optional<std::string> name_;
};

// How much of the end of `text` begins `mark` without completing it.
size_t PartialMark(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == mark.substr(0, size)) return size;
  }
  return 0;
}

std::string_view WithoutSpaceBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0.
}

}  // namespace

ToolStream::ToolStream(ToolFormat format, absl::flat_hash_set<std::string> tool_names)
    : format_(format), tool_names_(std::move(tool_names)) {}

std::vector<ToolEvent> ToolStream::Push(std::string_view piece) {
  buffer_ += piece;
  while (Step()) {
  }
  return std::exchange(events_, {});
}

std::vector<ToolEvent> ToolStream::Flush() {
  if (state_ == State::kCall) GiveUpCall();
  while (Step()) {
  }
  // A mark that never was completed is text, what should have closed a call is not.
  if (state_ == State::kText || state_ == State::kPlain) EmitText(buffer_);
  buffer_.clear();
  return std::exchange(events_, {});
}

bool ToolStream::Step() {
  switch (state_) {
    case State::kText:
      return StepText();
    case State::kCall:
      return StepCall();
    case State::kArguments:
      return StepArguments();
    case State::kCallEnd:
      return StepCallEnd();
    case State::kPlain:
      EmitText(std::exchange(buffer_, ""));
      return false;
  }
  return false;
}

bool ToolStream::StepText() {
  if (after_call_) buffer_.erase(0, buffer_.find_first_not_of(kSpace));
  if (format_ == ToolFormat::kLlama3) {
    std::string_view rest = buffer_;
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(kSpace)));
    if (rest.starts_with(kPythonTag)) {
      rest.remove_prefix(kPythonTag.size());
    } else if (kPythonTag.starts_with(rest)) {
      return false;  // Nothing yet, or a part of the tag.
    }
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(kSpace)));
    if (rest.empty()) return false;
    state_ = rest.front() == '{' && !after_call_ ? State::kCall : State::kPlain;
    if (state_ == State::kPlain) return true;
    pending_ = buffer_.substr(0, buffer_.size() - rest.size());
    buffer_.erase(0, pending_.size());
    return true;
  }
  const std::string_view mark = ToolCallMark(format_);
  const size_t found = buffer_.find(mark);
  if (found == std::string::npos) {
    const std::string_view whole = buffer_;
    const size_t out =
        WithoutSpaceBehind(whole.substr(0, whole.size() - PartialMark(whole, mark))).size();
    EmitText(whole.substr(0, out));
    buffer_.erase(0, out);
    return false;
  }
  const size_t text = WithoutSpaceBehind(std::string_view(buffer_).substr(0, found)).size();
  EmitText(std::string_view(buffer_).substr(0, text));
  pending_ = buffer_.substr(text, found + mark.size() - text);
  buffer_.erase(0, found + mark.size());
  state_ = State::kCall;
  return true;
}

bool ToolStream::StepCall() {
  HeadReader head(buffer_);
  const bool opens_list = format_ == ToolFormat::kMistral && !in_list_;
  const HeadReader::Verdict verdict = head.Read(opens_list);
  const bool needs_more = verdict == HeadReader::Verdict::kNeedsMore;
  if (needs_more && buffer_.size() <= kHeadBytesMax) return false;
  if (verdict != HeadReader::Verdict::kGood || head.consumed() > kHeadBytesMax ||
      !tool_names_.contains(head.name())) {
    GiveUpCall();
    return true;
  }
  ++calls_;
  Emit(ToolEvent::Kind::kCall, head.name());
  buffer_.erase(0, head.consumed());
  pending_.clear();
  in_list_ = format_ == ToolFormat::kMistral;
  depth_ = 0;
  in_string_ = false;
  state_ = State::kArguments;
  return true;
}

// What was taken for a call is text.
void ToolStream::GiveUpCall() {
  in_list_ = false;
  state_ = format_ == ToolFormat::kLlama3 ? State::kPlain : State::kText;
  EmitText(std::exchange(pending_, ""));
}

bool ToolStream::StepArguments() {
  size_t end = 0;
  bool complete = false;
  while (end < buffer_.size() && !complete) {
    const char c = buffer_[end++];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      complete = --depth_ == 0;
    }
  }
  if (end > 0) Emit(ToolEvent::Kind::kArguments, buffer_.substr(0, end));
  buffer_.erase(0, end);
  if (complete) state_ = State::kCallEnd;
  return complete;
}

bool ToolStream::StepCallEnd() {
  // What may follow, white space apart, and all of it optional: nobody misses a closing mark.
  std::string_view rest = buffer_;
  const auto skip_space = [&rest] {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(kSpace)));
  };
  const auto take = [&](std::string_view word) {
    skip_space();
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  const bool closed = take("}");
  const std::string_view end_mark =
      format_ == ToolFormat::kMistral ? std::string_view("]") : ToolCallEndMark(format_);
  State next = State::kText;
  if (in_list_ && closed && take(",")) {
    next = State::kCall;
    pending_ = ",";
  } else if (!end_mark.empty() && closed && !take(end_mark)) {
    if (end_mark.starts_with(rest)) return false;
  } else if (!closed && rest.empty()) {
    return false;
  }
  if (next == State::kText) in_list_ = false;
  after_call_ = true;
  buffer_.erase(0, buffer_.size() - rest.size());
  state_ = next;
  return true;
}

void ToolStream::EmitText(std::string_view text) {
  if (text.empty()) return;
  after_call_ = false;
  events_.push_back({.kind = ToolEvent::Kind::kText, .text = std::string(text)});
}

void ToolStream::Emit(ToolEvent::Kind kind, std::string text) {
  events_.push_back({.kind = kind, .index = calls_ - 1, .text = std::move(text)});
}

}  // namespace shardline
