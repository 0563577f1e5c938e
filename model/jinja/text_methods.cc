// The methods of str.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/jinja/attributes.h"
#include "model/jinja/format.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace shardline::jinja {
namespace {

// A text as safe as `self` is.
Value Like(Runtime& runtime, const Value& self, std::string_view bytes) {
  return Value::OfText(&runtime.meter, std::string(bytes), self.text().is_markup);
}

Value ListLike(Runtime& runtime, const Value& self, const std::vector<std::string_view>& pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(Like(runtime, self, piece));
  return Value::List(&runtime.meter, std::move(items));
}

// A piece a byte or more: the list may weigh much more than the text.
absl::Status MaySplit(Runtime& runtime, size_t pieces) {
  SL_RETURN_IF_ERROR(runtime.meter.Spend(pieces));
  constexpr size_t kBytesAPiece = 256;
  return runtime.meter.Fits(pieces * kBytesAPiece);
}

absl::StatusOr<Value> StripEnds(Runtime& runtime, const Value& self, Arguments& arguments,
                                bool left, bool right) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "strip", {"chars"}));
  SL_ASSIGN_OR_RETURN(const std::string characters, bound.TextOr(0, ""));
  const bool is_given = bound.Has(0) && !bound[0].Is(Kind::kNone);
  if (is_given && characters.empty()) return self;
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.bytes().size() * (1 + characters.size() / 8) / 8));
  std::string_view text = self.bytes();
  if (left) text = StripLeft(text, characters);
  if (right) text = StripRight(text, characters);
  return Like(runtime, self, text);
}

absl::StatusOr<Value> Strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return StripEnds(runtime, self, arguments, true, true);
}
absl::StatusOr<Value> LeftStrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return StripEnds(runtime, self, arguments, true, false);
}
absl::StatusOr<Value> RightStrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return StripEnds(runtime, self, arguments, false, true);
}

absl::StatusOr<Value> SplitFrom(Runtime& runtime, const Value& self, Arguments& arguments,
                                bool from_right) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "split", {"sep", "maxsplit"}));
  SL_ASSIGN_OR_RETURN(const int64_t splits, bound.IntegerOr(1, -1));
  if (!bound.Has(0) || bound[0].Is(Kind::kNone)) {
    SL_RETURN_IF_ERROR(MaySplit(runtime, self.bytes().size() / 2));
    return ListLike(runtime, self, SplitAtSpace(self.bytes(), splits, from_right));
  }
  SL_ASSIGN_OR_RETURN(const std::string separator, bound.TextOr(0, ""));
  if (separator.empty()) return Fault({"split at an empty separator"});
  SL_RETURN_IF_ERROR(runtime.meter.Spend(SearchSteps(self.bytes(), separator)));
  SL_RETURN_IF_ERROR(MaySplit(runtime, CountOf(self.bytes(), separator)));
  return ListLike(runtime, self, SplitAt(self.bytes(), separator, splits, from_right));
}

absl::StatusOr<Value> Split(Runtime& runtime, const Value& self, Arguments& arguments) {
  return SplitFrom(runtime, self, arguments, /*from_right=*/false);
}
absl::StatusOr<Value> RightSplit(Runtime& runtime, const Value& self, Arguments& arguments) {
  return SplitFrom(runtime, self, arguments, /*from_right=*/true);
}

absl::StatusOr<Value> Lines(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "splitlines", {"keepends"}));
  SL_RETURN_IF_ERROR(MaySplit(runtime, self.bytes().size() / 8));
  return ListLike(runtime, self, SplitLines(self.bytes(), bound.IsTrueAt(0)));
}

absl::StatusOr<Value> PartitionAt(Runtime& runtime, const Value& self, Arguments& arguments,
                                  bool from_right) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "partition", {"sep"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string separator, bound.TextOr(0, ""));
  if (separator.empty()) return Fault({"partition at an empty separator"});
  SL_RETURN_IF_ERROR(runtime.meter.Spend(SearchSteps(self.bytes(), separator)));
  const std::vector<std::string_view> pieces = SplitAt(self.bytes(), separator, 1, from_right);
  std::vector<Value> items(3, Like(runtime, self, ""));
  if (pieces.size() == 2) {
    items = {Like(runtime, self, pieces[0]), Like(runtime, self, separator),
             Like(runtime, self, pieces[1])};
  } else {
    items[from_right ? 2 : 0] = self;
  }
  return Value::Tuple(&runtime.meter, std::move(items));
}

absl::StatusOr<Value> Partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PartitionAt(runtime, self, arguments, /*from_right=*/false);
}
absl::StatusOr<Value> RightPartition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PartitionAt(runtime, self, arguments, /*from_right=*/true);
}

// The part of the text that `start` and `end`, arguments 1 and 2, leave; and where it starts, in
// code points. Nothing if it starts behind the text.
struct Window {
  std::string_view text;
  int64_t start = 0;
  bool exists = true;
};

absl::StatusOr<Window> WindowOf(const Value& self, const Bound& bound) {
  const int64_t length = static_cast<int64_t>(self.text().length);
  SL_ASSIGN_OR_RETURN(int64_t start, bound.IntegerOr(1, 0));
  SL_ASSIGN_OR_RETURN(int64_t end, bound.IntegerOr(2, length));
  if (start < 0) start = std::max<int64_t>(0, start < -length ? 0 : start + length);
  if (end < 0) end = std::max<int64_t>(0, end < -length ? 0 : end + length);
  end = std::min(end, length);
  if (start > end) return Window{.exists = false};
  const std::string_view text = self.bytes();
  const size_t from = OffsetOf(text, static_cast<size_t>(start));
  const size_t to = OffsetOf(text, static_cast<size_t>(end));
  return Window{.text = text.substr(from, to - from), .start = start};
}

absl::StatusOr<Value> HasAtEnd(Runtime& runtime, const Value& self, Arguments& arguments,
                               bool at_start) {
  SL_ASSIGN_OR_RETURN(const Bound bound,
                      Bind(arguments, "startswith", {"prefix", "start", "end"}, 1));
  SL_ASSIGN_OR_RETURN(const Window window, WindowOf(self, bound));
  std::vector<Value> candidates = {bound[0]};
  if (bound[0].Is(Kind::kSequence) && bound[0].sequence().form == Sequence::Form::kTuple) {
    candidates = bound[0].sequence().items;
  }
  for (const Value& candidate : candidates) {
    if (!candidate.Is(Kind::kText)) {
      return Fault({"startswith and endswith take str, not ", TypeName(candidate)});
    }
    SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
    const std::string& part = candidate.bytes();
    if (window.exists && (at_start ? window.text.starts_with(part) : window.text.ends_with(part))) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> StartsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return HasAtEnd(runtime, self, arguments, /*at_start=*/true);
}
absl::StatusOr<Value> EndsWith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return HasAtEnd(runtime, self, arguments, /*at_start=*/false);
}

absl::StatusOr<int64_t> FindFrom(Runtime& runtime, const Value& self, Arguments& arguments,
                                 bool from_right) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "find", {"sub", "start", "end"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string part, bound.TextOr(0, ""));
  SL_ASSIGN_OR_RETURN(const Window window, WindowOf(self, bound));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(SearchSteps(window.text, part)));
  const size_t found = from_right ? window.text.rfind(part) : window.text.find(part);
  if (!window.exists || found == window.text.npos) return -1;
  return window.start + static_cast<int64_t>(CodePointCount(window.text.substr(0, found)));
}

absl::StatusOr<Value> FindPart(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const int64_t at, FindFrom(runtime, self, arguments, /*from_right=*/false));
  return Value::Int(at);
}
absl::StatusOr<Value> FindLast(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const int64_t at, FindFrom(runtime, self, arguments, /*from_right=*/true));
  return Value::Int(at);
}
absl::StatusOr<Value> IndexOf(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const int64_t at, FindFrom(runtime, self, arguments, /*from_right=*/false));
  if (at < 0) return Fault({"substring not found"});
  return Value::Int(at);
}
absl::StatusOr<Value> LastIndexOf(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const int64_t at, FindFrom(runtime, self, arguments, /*from_right=*/true));
  if (at < 0) return Fault({"substring not found"});
  return Value::Int(at);
}

absl::StatusOr<Value> CountParts(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "count", {"sub", "start", "end"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string part, bound.TextOr(0, ""));
  SL_ASSIGN_OR_RETURN(const Window window, WindowOf(self, bound));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(SearchSteps(window.text, part)));
  return Value::Int(window.exists ? static_cast<int64_t>(CountOf(window.text, part)) : 0);
}

absl::StatusOr<Value> Replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "replace", {"old", "new", "count"}, 2));
  SL_ASSIGN_OR_RETURN(std::string part, bound.TextOr(0, ""));
  SL_ASSIGN_OR_RETURN(std::string by, bound.TextOr(1, ""));
  SL_ASSIGN_OR_RETURN(const int64_t count, bound.IntegerOr(2, -1));
  if (self.text().is_markup) {
    if (!bound[0].text().is_markup) part = EscapeHtml(part);
    if (!bound[1].text().is_markup) by = EscapeHtml(by);
  }
  SL_RETURN_IF_ERROR(runtime.meter.Spend(SearchSteps(self.bytes(), part)));
  const size_t times = CountOf(self.bytes(), part);
  size_t added = 0;
  if (__builtin_mul_overflow(times, by.size(), &added)) added = SIZE_MAX;
  SL_RETURN_IF_ERROR(runtime.meter.Fits(added));
  return Like(runtime, self, ReplaceIn(self.bytes(), part, by, count));
}

absl::StatusOr<Value> JoinItems(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "join", {"iterable"}, 1));
  const bool escapes = self.text().is_markup;
  if (bound[0].Is(Kind::kUndefined)) return Value::OfText(&runtime.meter, "");
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, bound[0]));
  std::string joined;
  bool is_first = true;
  for (const Value& item : items.sequence().items) {
    if (!item.Is(Kind::kText) && !escapes) return Fault({"join takes str, not ", TypeName(item)});
    SL_RETURN_IF_ERROR(runtime.meter.Fits(joined.size() + self.bytes().size()));
    if (!is_first) joined += self.bytes();
    is_first = false;
    SL_RETURN_IF_ERROR(runtime.meter.Spend(item.extent().weight));
    SL_ASSIGN_OR_RETURN(const std::string text, TextOf(item));
    const bool is_safe = item.Is(Kind::kText) && item.text().is_markup;
    joined += escapes && !is_safe ? EscapeHtml(text) : text;
  }
  return Value::OfText(&runtime.meter, std::move(joined), escapes);
}

template <std::string (*kMapped)(std::string_view)>
absl::StatusOr<Value> InCase(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "the method", {}).status());
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.bytes().size()));
  return Like(runtime, self, kMapped(self.bytes()));
}

template <bool (*kHolds)(char)>
absl::StatusOr<Value> IsAll(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "the method", {}).status());
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.bytes().size() / 8));
  const std::string& text = self.bytes();
  if (text.size() != self.text().length) {
    return Fault({"this method of str is supported for ASCII alone"});
  }
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), kHolds));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsLetterOrDigit(char c) { return IsLetter(c) || IsDigit(c); }

absl::StatusOr<Value> IsAllSpace(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "isspace", {}).status());
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.bytes().size() / 8));
  return Value::Bool(!self.bytes().empty() && StripLeft(self.bytes()).empty());
}

// Pads to argument 0 code points by argument 1; `left` and `right` are the sides that grow.
absl::StatusOr<Value> PadSides(Runtime& runtime, const Value& self, Arguments& arguments, bool left,
                               bool right) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "the method", {"width", "fillchar"}, 1));
  SL_ASSIGN_OR_RETURN(const int64_t width, bound.IntegerOr(0, 0));
  SL_ASSIGN_OR_RETURN(const std::string fill, bound.TextOr(1, " "));
  if (CodePointCount(fill) != 1) return Fault({"the fill character must be one character"});
  const int64_t length = static_cast<int64_t>(self.text().length);
  if (width <= length) return self;
  const auto missing = static_cast<size_t>(width - length);
  SL_RETURN_IF_ERROR(runtime.meter.Fits(missing));
  size_t before = left ? missing : 0;
  // As CPython splits an odd rest.
  if (left && right) before = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  std::string padded;
  for (size_t i = 0; i < before; ++i) padded += fill;
  padded += self.bytes();
  for (size_t i = before; i < missing; ++i) padded += fill;
  return Like(runtime, self, padded);
}

absl::StatusOr<Value> LeftJustify(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PadSides(runtime, self, arguments, false, true);
}
absl::StatusOr<Value> RightJustify(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PadSides(runtime, self, arguments, true, false);
}
absl::StatusOr<Value> Center(Runtime& runtime, const Value& self, Arguments& arguments) {
  return PadSides(runtime, self, arguments, true, true);
}

absl::StatusOr<Value> ZeroFill(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "zfill", {"width"}, 1));
  SL_ASSIGN_OR_RETURN(const int64_t width, bound.IntegerOr(0, 0));
  const int64_t missing = width - static_cast<int64_t>(self.text().length);
  if (missing <= 0) return self;
  SL_RETURN_IF_ERROR(runtime.meter.Fits(static_cast<size_t>(missing)));
  std::string text = self.bytes();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  text.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return Like(runtime, self, text);
}

absl::StatusOr<Value> RemoveEnd(Runtime& runtime, const Value& self, Arguments& arguments,
                                bool at_start) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "removeprefix", {"prefix"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string part, bound.TextOr(0, ""));
  std::string_view text = self.bytes();
  if (at_start && text.starts_with(part)) text.remove_prefix(part.size());
  if (!at_start && text.ends_with(part)) text.remove_suffix(part.size());
  return Like(runtime, self, text);
}

absl::StatusOr<Value> RemovePrefix(Runtime& runtime, const Value& self, Arguments& arguments) {
  return RemoveEnd(runtime, self, arguments, /*at_start=*/true);
}
absl::StatusOr<Value> RemoveSuffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  return RemoveEnd(runtime, self, arguments, /*at_start=*/false);
}

absl::StatusOr<Value> Format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return FormatBraces(runtime.meter, self.text(), arguments);
}

struct Entry {
  std::string_view name;
  Builtin function;
};

constexpr Entry kMethods[] = {{"strip", Strip},
                              {"lstrip", LeftStrip},
                              {"rstrip", RightStrip},
                              {"split", Split},
                              {"rsplit", RightSplit},
                              {"splitlines", Lines},
                              {"partition", Partition},
                              {"rpartition", RightPartition},
                              {"startswith", StartsWith},
                              {"endswith", EndsWith},
                              {"find", FindPart},
                              {"rfind", FindLast},
                              {"index", IndexOf},
                              {"rindex", LastIndexOf},
                              {"count", CountParts},
                              {"replace", Replace},
                              {"join", JoinItems},
                              {"upper", InCase<Upper>},
                              {"lower", InCase<Lower>},
                              {"capitalize", InCase<Capitalized>},
                              {"title", InCase<TitleCased>},
                              {"isdigit", IsAll<IsDigit>},
                              {"isdecimal", IsAll<IsDigit>},
                              {"isnumeric", IsAll<IsDigit>},
                              {"isalpha", IsAll<IsLetter>},
                              {"isalnum", IsAll<IsLetterOrDigit>},
                              {"isspace", IsAllSpace},
                              {"ljust", LeftJustify},
                              {"rjust", RightJustify},
                              {"center", Center},
                              {"zfill", ZeroFill},
                              {"removeprefix", RemovePrefix},
                              {"removesuffix", RemoveSuffix},
                              {"format", Format}};

}  // namespace

Builtin FindTextMethod(std::string_view name) {
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace shardline::jinja
