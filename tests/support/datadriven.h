#pragma once

// Transcripts as tests: a file of command lines, `----`, and what they print.
//
//   # A comment teaches what the next block shows.
//   open session=7 epoch=1
//   fence session=7 epoch=1
//   ----
//   ok
//   released 2
//
// A blank line ends a result. The commands of a block run in order and their outputs are put
// one after the other. SL_REWRITE=1 in the environment writes the results into the file instead
// of comparing them; the review reads the diff.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace shardline::testing {

struct Command {
  std::string name;
  std::map<std::string, std::string> arguments;  // key=value; a bare word has an empty value.
  int line = 0;

  bool Has(const std::string& key) const { return arguments.contains(key); }
  std::string Text(const std::string& key, const std::string& otherwise = "") const;
  // Fails the test if the value is not a number.
  uint64_t Number(const std::string& key, uint64_t otherwise = 0) const;
};

// Runs `path`, relative to the repository, through `execute`, which returns lines of text.
void RunTranscript(const std::string& path,
                   const std::function<std::string(const Command&)>& execute);

}  // namespace shardline::testing
