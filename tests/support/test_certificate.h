#pragma once

// A key and a certificate that it signs itself, for 127.0.0.1; new at every call.

#include <string>

namespace shardline::testing {

struct TestCertificate {
  std::string certificate;  // PEM files in `directory`.
  std::string key;
};
TestCertificate MakeTestCertificate(const std::string& directory);

}  // namespace shardline::testing
