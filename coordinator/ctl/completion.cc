#include "coordinator/ctl/completion.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/ctl/command_line.h"

namespace shardline {
namespace {

struct Word {
  std::string text;
  std::string what;
};

// What may follow a path of commands: further commands, and flags.
struct Level {
  std::string path;  // "model load"; empty at the top.
  std::vector<Word> commands;
  std::vector<Word> flags;
  std::vector<Word> values;  // Words a positional takes, where they are known.
};

std::vector<Word> FlagsOf(const CLI::App& app) {
  std::vector<Word> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back({"--" + name, option->get_description()});
    }
    for (const std::string& name : option->get_snames()) {
      flags.push_back({"-" + name, option->get_description()});
    }
  }
  return flags;
}

void Collect(const CLI::App& root, const CLI::App& app, const std::string& path,
             std::vector<Level>* levels) {
  Level level{.path = path, .commands = {}, .flags = FlagsOf(app), .values = {}};
  if (&app != &root) {
    for (Word& flag : FlagsOf(root)) {
      if (flag.text != "--help" && flag.text != "-h") level.flags.push_back(std::move(flag));
    }
  }
  if (path == "completion") level.values = {{"bash", ""}, {"zsh", ""}, {"fish", ""}};
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* next : app.get_subcommands(all)) {
    level.commands.push_back({next->get_name(), next->get_description()});
  }
  levels->push_back(level);
  for (const CLI::App* next : app.get_subcommands(all)) {
    Collect(root, *next,
            path.empty() ? next->get_name() : absl::StrCat(path, " ", next->get_name()), levels);
  }
}

std::string Texts(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const Word& word) { out->append(word.text); });
}

// The commands on the line so far, in `path`; shared by bash and zsh.
std::string FindPath(const std::vector<Level>& levels, const char* words) {
  std::vector<std::string> paths;
  for (const Level& level : levels) {
    if (!level.path.empty()) paths.push_back(absl::StrCat("\"", level.path, "\""));
  }
  return absl::StrCat("  local path=\"\" word\n  for word in ", words,
                      "; do\n    case \"${path:+$path }$word\" in\n      ",
                      absl::StrJoin(paths, "|"),
                      ") path=\"${path:+$path }$word\";;\n    esac\n  done\n");
}

std::string Bash(const std::vector<Level>& levels) {
  std::string script =
      "# bash completion for shardctl; source it, or put it into bash_completion.d.\n"
      "_shardctl() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  COMPREPLY=()\n";
  absl::StrAppend(&script, FindPath(levels, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\""));
  absl::StrAppend(
      &script,
      "  case \"$prev\" in\n"
      "    -o|--output) COMPREPLY=($(compgen -W \"table wide json name\" -- \"$cur\")); "
      "return;;\n"
      "    --color) COMPREPLY=($(compgen -W \"auto always never\" -- \"$cur\")); "
      "return;;\n"
      "  esac\n"
      "  local words=\"\" flags=\"\"\n"
      "  case \"$path\" in\n");
  for (const Level& level : levels) {
    std::vector<Word> words = level.commands;
    words.insert(words.end(), level.values.begin(), level.values.end());
    absl::StrAppend(&script, "    \"", level.path, "\") words=\"", Texts(words), "\"; flags=\"",
                    Texts(level.flags), "\";;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  if [[ \"$path\" == \"model load\" && \"$cur\" != -* ]]; then\n"
                  "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                  "  elif [[ \"$cur\" == -* ]]; then\n"
                  "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
                  "  else\n"
                  "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                  "  fi\n"
                  "}\n"
                  "complete -F _shardctl shardctl\n");
  return script;
}

std::string Zsh(const std::vector<Level>& levels) {
  std::string script =
      "#compdef shardctl\n"
      "_shardctl() {\n";
  absl::StrAppend(&script, FindPath(levels, "\"${(@)words[2,CURRENT-1]}\""),
                  "  local -a candidates\n  case \"$path\" in\n");
  for (const Level& level : levels) {
    absl::StrAppend(&script, "    \"", level.path, "\") candidates=(");
    std::vector<Word> all = level.commands;
    all.insert(all.end(), level.values.begin(), level.values.end());
    all.insert(all.end(), level.flags.begin(), level.flags.end());
    for (const Word& word : all) {
      const std::string what = absl::StrReplaceAll(word.what, {{"'", ""}, {":", " "}});
      absl::StrAppend(&script, "'", word.text, ":", what, "' ");
    }
    absl::StrAppend(&script, ");;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  [[ \"$path\" == \"model load\" ]] && _files\n"
                  "  _describe 'shardctl' candidates\n"
                  "}\n"
                  "compdef _shardctl shardctl\n");
  return script;
}

std::string Fish(const std::vector<Level>& levels) {
  std::string script = "# fish completion for shardctl\ncomplete -c shardctl -f\n";
  for (const Level& level : levels) {
    std::string condition = "__fish_use_subcommand";
    if (!level.path.empty()) {
      condition = absl::StrCat(
          "__fish_seen_subcommand_from ",
          absl::StrReplaceAll(level.path, {{" ", "; and __fish_seen_subcommand_from "}}));
    }
    std::vector<Word> words = level.commands;
    words.insert(words.end(), level.values.begin(), level.values.end());
    for (const Word& word : words) {
      absl::StrAppend(&script, "complete -c shardctl -n '", condition, "' -a ", word.text, " -d '",
                      absl::StrReplaceAll(word.what, {{"'", ""}}), "'\n");
    }
    for (const Word& flag : level.flags) {
      if (flag.text.rfind("--", 0) != 0) continue;
      absl::StrAppend(&script, "complete -c shardctl -n '", condition, "' -l ", flag.text.substr(2),
                      " -d '", absl::StrReplaceAll(flag.what, {{"'", ""}}), "'\n");
    }
  }
  absl::StrAppend(&script,
                  "complete -c shardctl -n '__fish_seen_subcommand_from model; and "
                  "__fish_seen_subcommand_from load' -F\n");
  return script;
}

}  // namespace

std::string CompletionScript(const std::string& shell) {
  const std::shared_ptr<CLI::App> tree = CtlCommandTree();
  std::vector<Level> levels;
  Collect(*tree, *tree, "", &levels);
  if (shell == "bash") return Bash(levels);
  if (shell == "zsh") return Zsh(levels);
  if (shell == "fish") return Fish(levels);
  return "";
}

}  // namespace shardline
