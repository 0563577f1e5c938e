#include "coordinator/gateway/api_logprobs.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/utf8_repair.h"

namespace shardline {
namespace {

double Clean(float logprob) {
  return logprob >= kLogprobMin ? static_cast<double>(logprob) : kLogprobMin;  // False for NaN.
}

std::string_view BytesOf(int32_t id, const LogprobStyle& style) {
  const bool is_known = id >= 0 && id < style.tokenizer->vocab_size();
  return is_known ? style.tokenizer->TokenBytes(id) : std::string_view();
}

std::string TokenName(int32_t id, const LogprobStyle& style) {
  return style.tokens_as_ids ? absl::StrCat("token_id:", id) : RepairUtf8(BytesOf(id, style));
}

Json ByteList(int32_t id, const LogprobStyle& style) {
  if (style.tokenizer->IsControl(id) && !style.shows_control) return nullptr;
  Json list = Json::array();
  for (const char byte : BytesOf(id, style)) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

std::vector<v1::TokenLogprob> Likeliest(const v1::RunToken& token) {
  std::vector<v1::TokenLogprob> top(token.top_logprobs().begin(), token.top_logprobs().end());
  std::stable_sort(top.begin(), top.end(),
                   [](const v1::TokenLogprob& a, const v1::TokenLogprob& b) {
                     return Clean(a.logprob()) > Clean(b.logprob());
                   });
  return top;
}

}  // namespace

Json ChatLogprob(const v1::RunToken& token, const LogprobStyle& style) {
  const auto entry = [&style](int32_t id, float logprob) -> Json {
    return {{"token", TokenName(id, style)},
            {"logprob", Clean(logprob)},
            {"bytes", ByteList(id, style)}};
  };
  Json out = entry(token.token(), token.logprob());
  out["top_logprobs"] = Json::array();
  for (const v1::TokenLogprob& other : Likeliest(token)) {
    out["top_logprobs"].push_back(entry(other.token(), other.logprob()));
  }
  return out;
}

Json EmptyCompletionLogprobs() {
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", Json::array()},
          {"text_offset", Json::array()}};
}

void AddCompletionLogprob(const v1::RunToken& token, const LogprobStyle& style, size_t text_offset,
                          Json* columns) {
  (*columns)["tokens"].push_back(TokenName(token.token(), style));
  (*columns)["token_logprobs"].push_back(Clean(token.logprob()));
  Json top = Json::object();
  for (const v1::TokenLogprob& other : Likeliest(token)) {
    // Tokens that are parts of characters may look alike: the likeliest has the name.
    const std::string name = TokenName(other.token(), style);
    if (!top.contains(name)) top[name] = Clean(other.logprob());
  }
  const std::string own = TokenName(token.token(), style);
  if (!top.contains(own)) top[own] = Clean(token.logprob());
  (*columns)["top_logprobs"].push_back(std::move(top));
  (*columns)["text_offset"].push_back(text_offset);
}

}  // namespace shardline
