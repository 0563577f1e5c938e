#include "model/grammar/json_format.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardline {
namespace {

std::string Date(GrammarBuilder* grammar) {
  const std::string leap_year =
      grammar->AddShared("leap-year",
                         "[12] [0-9] (\"0\" [48] | [2468] [048] | [13579] [26]) | "
                         "(\"12\" | \"16\" | \"20\" | \"24\" | \"28\") \"00\"");
  const std::string day_of_month = grammar->AddShared(
      "day-of-month",
      "(\"01\" | \"03\" | \"05\" | \"07\" | \"08\" | \"10\" | \"12\") \"-\" "
      "(\"0\" [1-9] | [12] [0-9] | \"3\" [01]) | "
      "(\"04\" | \"06\" | \"09\" | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\") | "
      "\"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])");
  return grammar->AddShared(
      "date", absl::StrCat("[12] [0-9]{3} \"-\" ", day_of_month, " | ", leap_year, " \"-02-29\""));
}

std::string Time(GrammarBuilder* grammar) {
  return grammar->AddShared("time",
                            "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] "
                            "(\".\" [0-9]{1,6})? "
                            "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])");
}

std::string Duration(GrammarBuilder* grammar) {
  const std::string count = grammar->AddShared("duration-count", "\"0\" | [1-9] [0-9]{0,5}");
  const auto part = [&](const char* unit, const std::string& smaller) {
    return absl::StrCat(count, " \"", unit, "\"", smaller.empty() ? "" : " (" + smaller + ")?");
  };
  const std::string second = part("S", "");
  const std::string minute = part("M", second);
  const std::string hour = part("H", minute);
  const std::string time = grammar->AddShared(
      "duration-time", absl::StrCat("\"T\" (", hour, " | ", minute, " | ", second, ")"));
  const std::string day = part("D", "");
  const std::string month = part("M", day);
  const std::string year = part("Y", month);
  return grammar->AddShared(
      "duration", absl::StrCat("\"P\" ((", day, " | ", month, " | ", year, ") ", time, "? | ", time,
                               " | ", part("W", ""), ")"));
}

std::string Hostname(GrammarBuilder* grammar) {
  const std::string label =
      grammar->AddShared("host-label", "[a-zA-Z0-9] ([a-zA-Z0-9\\x2D]{0,30} [a-zA-Z0-9])?");
  return grammar->AddShared("hostname", absl::StrCat(label, " (\".\" ", label, "){0,6}"));
}

std::string Email(GrammarBuilder* grammar) {
  return grammar->AddShared(
      "email", absl::StrCat("[a-zA-Z0-9]{1,20} ([.+_\\x2D] [a-zA-Z0-9]{1,20}){0,2} \"@\" ",
                            Hostname(grammar), " \".\" [a-zA-Z]{2,10}"));
}

std::string Ipv4(GrammarBuilder* grammar) {
  const std::string byte = grammar->AddShared(
      "ipv4-byte", "[0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]");
  return grammar->AddShared("ipv4", absl::StrCat(byte, " (\".\" ", byte, "){3}"));
}

std::string Ipv6(GrammarBuilder* grammar) {
  constexpr int kGroups = 8;
  const std::string group = grammar->AddShared("ipv6-group", "[0-9a-fA-F]{1,4}");
  const auto groups = [&](int min, int max) {
    return absl::StrCat(group, " (\":\" ", group, "){", min - 1, ",", max - 1, "}");
  };
  std::vector<std::string> ways = {groups(kGroups, kGroups)};
  // `::` stands for one group or more.
  for (int before = 0; before < kGroups; ++before) {
    const int after = kGroups - 1 - before;
    const std::string right = after == 0 ? "" : absl::StrCat(" (", groups(1, after), ")?");
    ways.push_back(absl::StrCat(before == 0 ? "" : groups(before, before) + " ", "\"::\"", right));
  }
  return grammar->AddShared("ipv6", absl::StrJoin(ways, " | "));
}

std::string Uri(GrammarBuilder* grammar) {
  return grammar->AddShared("uri",
                            absl::StrCat("\"http\" \"s\"? \"://\" ", Hostname(grammar),
                                         " (\":\" [1-9] [0-9]{0,3})? (\"/\" [a-zA-Z0-9._~\\x2D]*)* "
                                         "(\"?\" [a-zA-Z0-9._~=&\\x2D]*)?"));
}

std::string Uuid(GrammarBuilder* grammar) {
  return grammar->AddShared("uuid",
                            "[0-9a-fA-F]{8} (\"-\" [0-9a-fA-F]{4}){3} \"-\" [0-9a-fA-F]{12}");
}

std::string DateTime(GrammarBuilder* grammar) {
  return grammar->AddShared("date-time",
                            absl::StrCat("(", Date(grammar), ") \"T\" ", Time(grammar)));
}

}  // namespace

std::optional<std::string> AddJsonFormat(std::string_view format, GrammarBuilder* grammar) {
  struct Format {
    std::string_view name;
    std::string (*add)(GrammarBuilder*);
  };
  constexpr Format kFormats[] = {{"date", Date},         {"time", Time},   {"date-time", DateTime},
                                 {"duration", Duration}, {"email", Email}, {"hostname", Hostname},
                                 {"ipv4", Ipv4},         {"ipv6", Ipv6},   {"uri", Uri},
                                 {"uuid", Uuid}};
  for (const Format& known : kFormats) {
    if (known.name != format) continue;
    return grammar->AddShared(absl::StrCat(std::string(format), "-string"),
                              absl::StrCat("\"\\\"\" ", known.add(grammar), " \"\\\"\""));
  }
  return std::nullopt;
}

}  // namespace shardline
