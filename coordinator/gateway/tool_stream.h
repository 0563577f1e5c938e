#pragma once

// Finds tool calls in a text that comes in pieces: what is text goes out as text, what is a call
// as its name and then its arguments, piece by piece as they come.
//
// Any cut of the same text gives the same text, calls and arguments. What begins like a call but
// names no known tool, or breaks before its arguments, is text. White space around calls is
// dropped. Pieces are valid UTF-8.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/gateway/tool_format.h"

namespace shardline {

struct ToolEvent {
  enum class Kind { kText, kCall, kArguments };
  Kind kind = Kind::kText;
  int index = 0;     // Of the call, from 0.
  std::string text;  // The text, the tool's name, or a piece of the arguments' JSON.

  friend bool operator==(const ToolEvent&, const ToolEvent&) = default;
};

class ToolStream {
 public:
  // REQUIRES: format is not kNone.
  ToolStream(ToolFormat format, absl::flat_hash_set<std::string> tool_names);

  std::vector<ToolEvent> Push(std::string_view piece);
  std::vector<ToolEvent> Flush();  // At the end of the text.

  int calls() const { return calls_; }  // Begun.

 private:
  enum class State {
    kText,       // Outside any call; `buffer_` may begin a mark.
    kCall,       // Behind a mark: a call's JSON, up to where the arguments begin.
    kArguments,  // Inside them.
    kCallEnd,    // Behind them: the rest of the call's object and what closes it.
    kPlain,      // No call comes any more.
  };

  // Each takes what it can from the buffer; false when it needs more.
  bool StepText();
  bool StepCall();
  bool StepArguments();
  bool StepCallEnd();
  bool Step();

  void EmitText(std::string_view text);
  void Emit(ToolEvent::Kind kind, std::string text);
  void GiveUpCall();

  const ToolFormat format_;
  const absl::flat_hash_set<std::string> tool_names_;
  State state_ = State::kText;
  std::string buffer_;   // Not yet understood.
  std::string pending_;  // What led to kCall: text, if it turns out to be none.
  bool after_call_ = false;
  bool in_list_ = false;  // kMistral: inside the list of calls.
  int calls_ = 0;

  // Inside arguments.
  size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;

  std::vector<ToolEvent> events_;
};

}  // namespace shardline
