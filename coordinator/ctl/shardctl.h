#pragma once

// shardctl as a function: arguments in, two streams and an exit code out.

#include <iosfwd>
#include <string>
#include <vector>

namespace shardline {

// What a process finds out about where it runs.
struct CtlTerminal {
  std::istream* in;
  std::ostream* out;  // Data.
  std::ostream* err;  // Everything else.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool no_color = false;  // NO_COLOR is set.
  int columns = 100;
};

// `args` without the program's name. Gives the exit code.
int RunShardctl(const std::vector<std::string>& args, const CtlTerminal& terminal);

}  // namespace shardline
