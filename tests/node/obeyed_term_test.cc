#include "node/obeyed_term.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/failure.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::HasSubstr;

std::string FreshFolder(const std::string& name) {
  const std::string path = ::testing::TempDir() + "obeyed_term_" + name;
  std::filesystem::remove_all(path);
  return path;
}

const NodeId kNode("n-1");

TEST(ObeyedTerm, ARestartDoesNotForgetIt) {
  const std::string folder = FreshFolder("restart");
  {
    absl::StatusOr<ObeyedTerm> term = ObeyedTerm::Open(folder, kNode);
    ASSERT_THAT(term.status(), IsOk());
    EXPECT_EQ(term->value(), Term(0));
    EXPECT_THAT(term->Obey(Term(7)), IsOk());
  }
  absl::StatusOr<ObeyedTerm> term = ObeyedTerm::Open(folder, kNode);
  ASSERT_THAT(term.status(), IsOk());
  EXPECT_EQ(term->value(), Term(7));
  // Another node of the same folder may be of another cluster.
  EXPECT_EQ(ObeyedTerm::Open(folder, NodeId("n-2"))->value(), Term(0));
}

TEST(ObeyedTerm, ALowerOneIsRefusedByBothNumbersAndTheWayOut) {
  const std::string folder = FreshFolder("lower");
  ObeyedTerm term = ObeyedTerm::Open(folder, kNode).value();
  ASSERT_THAT(term.Obey(Term(7)), IsOk());
  EXPECT_THAT(term.Obey(Term(7)), IsOk());
  const absl::Status refused = term.Obey(Term(6));
  EXPECT_THAT(refused, FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(refused.message(), HasSubstr("term 6"));
  EXPECT_THAT(refused.message(), HasSubstr("term 7"));
  EXPECT_THAT(refused.message(), HasSubstr("--restore"));
  EXPECT_THAT(refused.message(), HasSubstr("term-n-1"));
  EXPECT_EQ(term.value(), Term(7));
}

TEST(ObeyedTerm, AFileThatHoldsNoNumberIsNamed) {
  const std::string folder = FreshFolder("bad");
  std::filesystem::create_directories(folder);
  for (const char* text : {"", "seven", "-1", "99999999999999999999999"}) {
    std::ofstream(folder + "/term-n-1") << text;
    const absl::Status status = ObeyedTerm::Open(folder, kNode).status();
    EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest)) << text;
    EXPECT_THAT(status.message(), HasSubstr(folder + "/term-n-1"));
  }
}

TEST(ObeyedTerm, WhatCannotBeKeptIsNotObeyed) {
  const std::string folder = FreshFolder("gone");
  ObeyedTerm term = ObeyedTerm::Open(folder, kNode).value();
  std::filesystem::remove_all(folder);
  EXPECT_THAT(term.Obey(Term(7)), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_EQ(term.value(), Term(0));
}

TEST(ObeyedTerm, WithoutAFolderItLastsAsLongAsTheProcess) {
  ObeyedTerm term = ObeyedTerm::Open("", kNode).value();
  ASSERT_THAT(term.Obey(Term(7)), IsOk());
  EXPECT_THAT(term.Obey(Term(6)), FailsWith(FailureKind::kStaleEpoch));
}

}  // namespace
}  // namespace shardline
