#include "model/hyper_parameters.h"

#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr Architecture kArchitectures[] = {Architecture::kLlama, Architecture::kQwen2,
                                           Architecture::kQwen3};

// Keys "<architecture>.<suffix>" of numbers that change the arithmetic in a way that no kernel
// here does, with the value at which they change nothing.
struct NeutralKey {
  const char* suffix;
  double neutral;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"attention.sliding_window", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.clamp_kqv", 0},
    {"attention.scale", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"embedding_scale", 0},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"rope.scaling.yarn_ext_factor", 1},
};

class MetadataReader {
 public:
  MetadataReader(const GgufFile& file, Architecture architecture)
      : file_(file), prefix_(absl::StrCat(std::string(ArchitectureName(architecture)), ".")) {}

  std::string Key(const char* suffix) const { return absl::StrCat(prefix_, suffix); }

  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(file_.metadata().file(), ": ", parts...));
  }

  // An integer in [1, max]; `fallback` (or an error, if there is none) when the key is absent.
  absl::StatusOr<int32_t> Size(const char* suffix, int32_t max,
                               std::optional<int32_t> fallback = std::nullopt) const {
    const std::string key = Key(suffix);
    if (file_.metadata().Find(key) == nullptr) {
      if (fallback) return *fallback;
      return Bad("no metadata key ", key, ", which every model needs");
    }
    SL_ASSIGN_OR_RETURN(const uint64_t value, file_.metadata().GetUint(key));
    if (value < 1 || value > static_cast<uint64_t>(max)) {
      return Bad(key, " is ", value, ", not from 1 to ", max);
    }
    return static_cast<int32_t>(value);
  }

  // A float in [min, max]; `fallback` when the key is absent.
  absl::StatusOr<float> Number(const char* suffix, double min, double max,
                               std::optional<float> fallback = std::nullopt) const {
    const std::string key = Key(suffix);
    if (file_.metadata().Find(key) == nullptr) {
      if (fallback) return *fallback;
      return Bad("no metadata key ", key, ", which every model needs");
    }
    SL_ASSIGN_OR_RETURN(const double value, file_.metadata().GetFloat(key));
    if (!(value >= min && value <= max)) {  // Also refuses NaN.
      return Bad(key, " is ", value, ", not from ", min, " to ", max);
    }
    return static_cast<float>(value);
  }

  absl::Status CheckNeutralKeys() const {
    for (const NeutralKey& rule : kNeutralKeys) {
      const std::string key = Key(rule.suffix);
      const GgufValue* value = file_.metadata().Find(key);
      if (value == nullptr) continue;
      const auto number = file_.metadata().GetFloat(key);
      const auto integer = file_.metadata().GetUint(key);
      const bool neutral = (number.ok() && *number == rule.neutral) ||
                           (integer.ok() && static_cast<double>(*integer) == rule.neutral);
      if (!neutral) return Bad(key, " is set, not supported by this build");
    }
    SL_ASSIGN_OR_RETURN(const bool causal,
                        file_.metadata().GetBoolOr(Key("attention.causal"), true));
    if (!causal) return Bad(Key("attention.causal"), " is false, not supported by this build");
    return absl::OkStatus();
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

absl::StatusOr<Architecture> ReadArchitecture(const GgufFile& file) {
  const auto name = file.metadata().GetString("general.architecture");
  if (absl::IsNotFound(name.status())) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat(file.metadata().file(), ": no metadata key general.architecture"));
  }
  SL_RETURN_IF_ERROR(name.status());
  for (const Architecture architecture : kArchitectures) {
    if (*name == ArchitectureName(architecture)) return architecture;
  }
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat(file.metadata().file(), ": architecture ", Quoted(*name),
                                  " not supported by this build, which has llama, qwen2, qwen3"));
}

absl::Status ReadHeads(const MetadataReader& reader, HyperParameters& hp) {
  SL_ASSIGN_OR_RETURN(hp.q_heads, reader.Size("attention.head_count", kHeadsMax));
  SL_ASSIGN_OR_RETURN(hp.kv_heads, reader.Size("attention.head_count_kv", kHeadsMax, hp.q_heads));
  if (hp.q_heads % hp.kv_heads != 0) {
    return reader.Bad("attention.head_count_kv ", hp.kv_heads,
                      " does not divide attention.head_count ", hp.q_heads);
  }
  const bool divides = hp.hidden_dim % hp.q_heads == 0;
  SL_ASSIGN_OR_RETURN(hp.head_dim, reader.Size("attention.key_length", kHeadDimMax,
                                               divides ? hp.hidden_dim / hp.q_heads : int32_t{0}));
  if (hp.head_dim == 0) {
    return reader.Bad("attention.head_count ", hp.q_heads, " does not divide embedding_length ",
                      hp.hidden_dim, " and there is no attention.key_length");
  }
  if (hp.head_dim % 2 != 0 || hp.head_dim > kHeadDimMax) {
    return reader.Bad("head dimension ", hp.head_dim, " is odd or above ", kHeadDimMax);
  }
  SL_ASSIGN_OR_RETURN(const int32_t value_length,
                      reader.Size("attention.value_length", kHeadDimMax, hp.head_dim));
  if (value_length != hp.head_dim) {
    return reader.Bad("attention.value_length ", value_length, " is not attention.key_length ",
                      hp.head_dim, ", not supported by this build");
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeScaling> ReadScalingType(const GgufFile& file, const MetadataReader& reader) {
  const std::string key = reader.Key("rope.scaling.type");
  const bool has_factors = file.FindTensor("rope_freqs.weight") != nullptr;
  RopeScaling scaling = RopeScaling::kNone;
  if (file.metadata().Find(key) != nullptr) {
    SL_ASSIGN_OR_RETURN(const std::string_view name, file.metadata().GetString(key));
    if (name == "linear") {
      scaling = RopeScaling::kLinear;
    } else if (name == "yarn") {
      scaling = RopeScaling::kYarn;
    } else if (name != "none" && !(name == "llama3" && has_factors)) {
      return reader.Bad(key, " is ", Quoted(name),
                        ", not supported by this build, which has none, linear, yarn, and the "
                        "tensor rope_freqs.weight");
    }
  } else if (file.metadata().Find(reader.Key("rope.scale_linear")) != nullptr) {
    scaling = RopeScaling::kLinear;  // The older way to say it.
  }
  if (!has_factors) return scaling;
  if (scaling != RopeScaling::kNone) {
    return reader.Bad(key,
                      " together with the tensor rope_freqs.weight, not supported by this build");
  }
  return RopeScaling::kFactors;
}

absl::Status ReadRope(const GgufFile& file, const MetadataReader& reader, HyperParameters& hp) {
  RopeParameters& rope = hp.rope;
  SL_ASSIGN_OR_RETURN(rope.base, reader.Number("rope.freq_base", 1.0, 1e12, rope.base));
  SL_ASSIGN_OR_RETURN(rope.dimension_count,
                      reader.Size("rope.dimension_count", kHeadDimMax, hp.head_dim));
  if (rope.dimension_count % 2 != 0 || rope.dimension_count > hp.head_dim) {
    return reader.Bad("rope.dimension_count ", rope.dimension_count,
                      " is odd or above the head dimension ", hp.head_dim);
  }
  rope.pairing =
      hp.architecture == Architecture::kLlama ? RopePairing::kInterleaved : RopePairing::kHalfSplit;
  SL_ASSIGN_OR_RETURN(rope.scaling, ReadScalingType(file, reader));
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    const bool old_key = file.metadata().Find(reader.Key("rope.scaling.factor")) == nullptr;
    SL_ASSIGN_OR_RETURN(
        rope.factor,
        reader.Number(old_key ? "rope.scale_linear" : "rope.scaling.factor", 1.0, 65'536.0));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    SL_ASSIGN_OR_RETURN(rope.original_context, reader.Size("rope.scaling.original_context_length",
                                                           kContextMax, hp.context_length));
    SL_ASSIGN_OR_RETURN(rope.attention_factor,
                        reader.Number("rope.scaling.attn_factor", 1e-3, 1e3, 1.0f));
    SL_ASSIGN_OR_RETURN(rope.beta_fast,
                        reader.Number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, rope.beta_fast));
    SL_ASSIGN_OR_RETURN(rope.beta_slow,
                        reader.Number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, rope.beta_slow));
    if (rope.beta_slow >= rope.beta_fast) {
      return reader.Bad("rope.scaling.yarn_beta_slow is not below yarn_beta_fast");
    }
  }
  return absl::OkStatus();
}

// The key, the tokenizer and the embedding each may say it; they must not disagree. The
// embedding's own shape is CheckTensors' to judge.
absl::Status ReadVocab(const GgufFile& file, const MetadataReader& reader, HyperParameters& hp) {
  int64_t tokens = 0;
  const auto listed = file.metadata().ArrayCount("tokenizer.ggml.tokens");
  if (listed.ok()) {
    tokens = static_cast<int64_t>(*listed);
  } else if (!absl::IsNotFound(listed.status())) {
    return listed.status();
  }
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  int64_t fallback = tokens;
  if (fallback == 0 && embedding != nullptr && embedding->shape.size() == 2) {
    fallback = embedding->shape[1];
  }
  const bool usable = fallback >= 1 && fallback <= kVocabMax;
  SL_ASSIGN_OR_RETURN(hp.vocab_size, reader.Size("vocab_size", kVocabMax,
                                                 usable ? static_cast<int32_t>(fallback) : 0));
  if (hp.vocab_size == 0)
    return reader.Bad("vocabulary of ", fallback, " tokens, not 1 to ", kVocabMax);
  if (tokens != 0 && tokens != hp.vocab_size) {
    return reader.Bad(reader.Key("vocab_size"), " is ", hp.vocab_size,
                      ", but tokenizer.ggml.tokens lists ", tokens);
  }
  return absl::OkStatus();
}

void ReadTensorFlags(const GgufFile& file, HyperParameters& hp) {
  hp.tied_head = file.FindTensor("output.weight") == nullptr;
  hp.qk_norm = hp.architecture == Architecture::kQwen3;
  hp.attention_bias = hp.architecture == Architecture::kQwen2;
  if (hp.architecture != Architecture::kLlama) return;
  // A llama file may have biases; then every layer must, which CheckTensors holds it to.
  for (const GgufTensor& tensor : file.tensors()) {
    for (const char* suffix : {".attn_q.bias", ".attn_k.bias", ".attn_v.bias"}) {
      hp.attention_bias |= tensor.name.ends_with(suffix);
    }
  }
}

}  // namespace

std::string_view ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
  }
  SL_CHECK(false, "no architecture ", static_cast<int>(architecture));
  return "";
}

absl::StatusOr<HyperParameters> HyperParameters::FromGguf(const GgufFile& file) {
  HyperParameters hp;
  SL_ASSIGN_OR_RETURN(hp.architecture, ReadArchitecture(file));
  const MetadataReader reader(file, hp.architecture);
  SL_RETURN_IF_ERROR(reader.CheckNeutralKeys());
  SL_ASSIGN_OR_RETURN(hp.layer_count, reader.Size("block_count", kLayersMax));
  SL_ASSIGN_OR_RETURN(hp.hidden_dim, reader.Size("embedding_length", kHiddenDimMax));
  SL_ASSIGN_OR_RETURN(hp.ff_dim, reader.Size("feed_forward_length", kFfDimMax));
  SL_ASSIGN_OR_RETURN(hp.context_length, reader.Size("context_length", kContextMax));
  SL_ASSIGN_OR_RETURN(hp.rms_epsilon,
                      reader.Number("attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  SL_RETURN_IF_ERROR(ReadHeads(reader, hp));
  SL_RETURN_IF_ERROR(ReadRope(file, reader, hp));
  SL_RETURN_IF_ERROR(ReadVocab(file, reader, hp));
  ReadTensorFlags(file, hp);
  return hp;
}

}  // namespace shardline
