#include "coordinator/gateway/api_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace shardline {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Field names of clients go into messages only so far.
std::string Shortened(const std::string& path) {
  constexpr size_t kShown = 128;
  return path.size() <= kShown ? path : path.substr(0, kShown) + "...";
}

// Builds a value from the parser's events and stops at the first thing it does not take.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view body, const JsonLimits& limits) : body_(body), limits_(limits) {}

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(value); }
  bool number_float(double value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return Refuse("", "binary values are no JSON"); }

  bool start_object(size_t) { return Enter(Json::object()); }
  bool end_object() { return Leave(); }
  bool start_array(size_t) { return Enter(Json::array()); }
  bool end_array() { return Leave(); }

  bool key(std::string& name) {
    Frame& frame = frames_.back();
    frame.key = std::move(name);
    if (!frame.keys.insert(frame.key).second) {
      return Refuse(Path(), "the field is given twice");
    }
    return CountOne();
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) return Refuse(Path(), "the number is out of range");
    return RefuseAt(position, ReasonOf(error.what()));
  }

  Json TakeValue() { return std::move(root_); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  struct Frame {
    Json* container;
    std::string key;                        // Of an object: the field being read.
    absl::flat_hash_set<std::string> keys;  // Of an object.
  };

  bool Add(Json value) { return CountOne() && Place(std::move(value)) != nullptr; }

  bool Enter(Json empty) {
    if (!CountOne()) return false;
    if (frames_.size() >= limits_.depth_max) {
      return Refuse(
          "", absl::StrCat("the JSON is nested more than ", limits_.depth_max, " levels deep"));
    }
    frames_.push_back(Frame{.container = Place(std::move(empty))});
    return true;
  }

  bool Leave() {
    frames_.pop_back();
    return true;
  }

  // Behind what the innermost container holds; the key is known to be new, so nothing is searched.
  Json* Place(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& container = *frames_.back().container;
    if (container.is_array()) {
      container.push_back(std::move(value));
      return &container.back();
    }
    Json::object_t& object = container.get_ref<Json::object_t&>();
    return &object.Json::object_t::Container::emplace_back(frames_.back().key, std::move(value))
                .second;
  }

  bool CountOne() {
    if (++values_ <= limits_.values_max) return true;
    return Refuse("", absl::StrCat("the JSON has more than ", limits_.values_max, " values"));
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.container->is_array()) {
        // All but the innermost hold already what is being read.
        const size_t held = &frame == &frames_.back() ? 0 : 1;
        absl::StrAppend(&path, "[", frame.container->size() - held, "]");
      } else {
        absl::StrAppend(&path, path.empty() ? "" : ".", frame.key);
      }
    }
    return Shortened(path);
  }

  bool Refuse(std::string param, std::string message) {
    if (!error_) error_ = InvalidValue(std::move(param), std::move(message));
    return false;
  }

  // `position`: bytes read, the one that is wrong among them.
  bool RefuseAt(size_t position, const std::string& reason) {
    const std::string_view read = body_.substr(0, std::min(position, body_.size()));
    const size_t lines = static_cast<size_t>(std::count(read.begin(), read.end(), '\n'));
    const size_t line_begin = read.rfind('\n') + 1;  // 0 without one.
    return Refuse("", absl::StrCat("the body is not valid JSON: line ", lines + 1, ", column ",
                                   std::max<size_t>(1, read.size() - line_begin), " (byte ",
                                   position, "): ", reason));
  }

  // The library's sentence, less what it quotes of the input.
  static std::string ReasonOf(std::string_view what) {
    if (const size_t quote = what.find("; last read:"); quote != std::string_view::npos) {
      what = what.substr(0, quote);
    }
    const size_t dash = what.find(" - ");
    return std::string(dash == std::string_view::npos ? "it does not parse"
                                                      : what.substr(dash + 3));
  }

  const std::string_view body_;
  const JsonLimits limits_;
  Json root_;
  std::vector<Frame> frames_;
  size_t values_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace

ApiResult<Json> ParseJson(std::string_view body, const JsonLimits& limits) {
  if (body.size() > limits.bytes_max) {
    return HttpRefusal(413, absl::StrCat("the body has ", body.size(), " bytes, at most ",
                                         limits.bytes_max, " are taken"));
  }
  JsonBuilder builder(body, limits);
  const bool whole = Json::sax_parse(body.begin(), body.end(), &builder);
  if (builder.error()) return *builder.error();
  if (!whole) return InvalidValue("", "the body is not valid JSON");
  return builder.TakeValue();
}

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonFields::JsonFields(const Json& object, std::string path, std::optional<ApiError>* error)
    : object_(object), path_(std::move(path)), error_(error) {}

const Json* JsonFields::Find(std::string_view name) {
  asked_.insert(std::string(name));
  if (failed()) return nullptr;
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* JsonFields::Typed(std::string_view name, bool (Json::*is_type)() const noexcept,
                              std::string_view type) {
  const Json* const value = Find(name);
  if (value == nullptr || (value->*is_type)()) return value;
  Fail(InvalidValue(PathOf(name), absl::StrCat(View(PathOf(name)), " must be ", View(type))));
  return nullptr;
}

const Json* JsonFields::Array(std::string_view name) {
  return Typed(name, &Json::is_array, "an array");
}

const Json* JsonFields::Object(std::string_view name) {
  return Typed(name, &Json::is_object, "an object");
}

std::optional<bool> JsonFields::Bool(std::string_view name) {
  const Json* const value = Typed(name, &Json::is_boolean, "true or false");
  return value == nullptr ? std::nullopt : std::optional<bool>(value->get<bool>());
}

std::optional<std::string> JsonFields::String(std::string_view name) {
  const Json* const value = Typed(name, &Json::is_string, "a string");
  return value == nullptr ? std::nullopt
                          : std::optional<std::string>(value->get_ref<const std::string&>());
}

std::optional<double> JsonFields::Number(std::string_view name, double low, double high) {
  const Json* const value = Typed(name, &Json::is_number, "a number");
  if (value == nullptr) return std::nullopt;
  const auto number = value->get<double>();
  if (number >= low && number <= high) return number;
  Fail(InvalidValue(PathOf(name), absl::StrCat(View(PathOf(name)), " is ", number, ", allowed are ",
                                               low, " to ", high)));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Int(std::string_view name, int64_t low, int64_t high) {
  const Json* const value = Typed(name, &Json::is_number, "a whole number");
  if (value == nullptr) return std::nullopt;
  const auto number = value->get<double>();
  if (number != std::floor(number)) {
    Fail(InvalidValue(PathOf(name), absl::StrCat(View(PathOf(name)), " must be a whole number")));
    return std::nullopt;
  }
  if (number < static_cast<double>(low) || number > static_cast<double>(high)) {
    Fail(InvalidValue(PathOf(name), absl::StrCat(View(PathOf(name)), " is ", value->dump(),
                                                 ", allowed are ", low, " to ", high)));
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

std::optional<uint64_t> JsonFields::Bits64(std::string_view name) {
  const Json* const value = Typed(name, &Json::is_number_integer, "a whole number of 64 bits");
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  return static_cast<uint64_t>(value->get<int64_t>());
}

bool JsonFields::Has(std::string_view name) { return Find(name) != nullptr; }

void JsonFields::Ignore(std::string_view name) { asked_.insert(std::string(name)); }

std::vector<std::string> JsonFields::Unasked() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!asked_.contains(name)) names.push_back(name);
  }
  return names;
}

void JsonFields::Fail(ApiError error) {
  if (!failed()) *error_ = std::move(error);
}

std::string JsonFields::PathOf(std::string_view name) const {
  return absl::StrCat(path_, View(name));
}

}  // namespace shardline
