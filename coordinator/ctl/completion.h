#pragma once

// Completion scripts, made from the tree of commands so that they cannot fall behind it.

#include <string>

namespace shardline {

// `shell` is "bash", "zsh" or "fish"; empty for another.
std::string CompletionScript(const std::string& shell);

}  // namespace shardline
