#pragma once

// Finds tool calls in a text that comes in pieces: what is text goes out as text, what is a call
// as its name and then its arguments, piece by piece as they come.
//
// Any cut of the same text gives the same text, calls and arguments. What only looked like a call
// (its JSON breaks, or its tool is unknown) is text.

#include <cstdint>
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
};

class ToolStream {
 public:
  ToolStream(ToolFormat format, absl::flat_hash_set<std::string> tool_names);

  std::vector<ToolEvent> Push(std::string_view piece);
  std::vector<ToolEvent> Flush();  // At the end of the text.

  int calls() const { return calls_; }  // Begun.

 private:
  enum class State {
    kText,       // Outside any call; `buffer_` may begin a mark.
    kCall,       // Behind a mark: its JSON, up to where the arguments begin.
    kArguments,  // Inside them.
    kCallEnd,    // Behind them: the rest of the call's object and its closing mark.
  };

  const ToolFormat format_;
  const absl::flat_hash_set<std::string> tool_names_;
  State state_ = State::kText;
  std::string buffer_;
  int calls_ = 0;
};

}  // namespace shardline
