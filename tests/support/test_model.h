#pragma once

// Where the real model for tests lies: $SHARDLINE_TEST_MODEL, else models/ below the source root,
// which is where ctest runs its tests.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace shardline::testing {

// Fails the test, saying how to fetch the model, if it is not there; then gives "".
inline std::string TestModelPath() {
  const char* set = std::getenv("SHARDLINE_TEST_MODEL");
  const std::string path = set != nullptr ? set : "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (std::filesystem::is_regular_file(path)) return path;
  ADD_FAILURE() << "no model at " << path << ". Fetch it with deploy/fetch_model.sh, or point "
                << "SHARDLINE_TEST_MODEL at the file.";
  return "";
}

}  // namespace shardline::testing
