#include "cli/base/completion.h"

#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace cairn::cli {
namespace {

// A command, and the words that name it, for example "cairn corpus bpe".
struct Place {
  std::string path;
  const CommandDescription* command = nullptr;
  // Its own options and those of its parent commands, which may follow it too.
  std::vector<const OptionDescription*> options;
};

void AddPlaces(const CommandDescription& command, const std::string& path,
               const std::vector<const OptionDescription*>& inherited, std::vector<Place>& places) {
  Place place{path, &command, {}};
  for (const OptionDescription& option : command.options) {
    if (!option.positional) place.options.push_back(&option);
  }
  for (const OptionDescription* option : inherited) {
    if (option->names.front() != "--help") place.options.push_back(option);  // every command has its own
  }
  const std::vector<const OptionDescription*> options = place.options;
  places.push_back(std::move(place));
  for (const CommandDescription& below : command.commands) {
    AddPlaces(below, absl::StrCat(path, " ", below.name), options, places);
  }
}

std::vector<Place> PlacesOf(const CommandDescription& program) {
  std::vector<Place> places;
  AddPlaces(program, program.name, {}, places);
  return places;
}

// Quotes a text for sh, bash and zsh.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}
// Quotes a text for fish, which treats a backslash within single quotes as an escape.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// Returns the paths of all commands below the program, for example "'cairn save'|'cairn load'".
std::string PathsBelow(const std::vector<Place>& places, const std::string& separator) {
  std::vector<std::string> paths;
  for (size_t i = 1; i < places.size(); ++i) paths.push_back(Quoted(places[i].path));
  return absl::StrJoin(paths, separator);
}

// Returns the lines of a shell `case` over "<path> <option>", for options that take a value.
std::string ValueCases(const std::vector<Place>& places,
                       const std::function<std::string(const OptionDescription&)>& complete) {
  std::string text;
  for (const Place& place : places) {
    for (const OptionDescription* option : place.options) {
      if (!option->takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option->names) patterns.push_back(Quoted(absl::StrCat(place.path, " ", name)));
      absl::StrAppend(&text, "    ", absl::StrJoin(patterns, "|"), ") ", complete(*option), " ;;\n");
    }
  }
  return text;
}

std::vector<std::string> WordsOf(const Place& place) {
  std::vector<std::string> words;
  for (const CommandDescription& command : place.command->commands) words.push_back(command.name);
  for (const OptionDescription* option : place.options) {
    words.insert(words.end(), option->names.begin(), option->names.end());
  }
  return words;
}

}  // namespace

std::string BashCompletion(const CommandDescription& program) {
  const std::vector<Place> places = PlacesOf(program);
  std::string text = absl::StrCat(
      "# Completes ", program.name, " in bash. For one shell: source <(", program.name, " completion bash)\n_",
      program.name, "() {\n  local word=${COMP_WORDS[COMP_CWORD]} at=", program.name, " words='' i\n",
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n    case \"$at ${COMP_WORDS[i]}\" in\n      ", PathsBelow(places, "|"),
      ") at+=\" ${COMP_WORDS[i]}\" ;;\n    esac\n  done\n  COMPREPLY=()\n",
      "  case \"$at ${COMP_WORDS[COMP_CWORD - 1]}\" in\n",
      ValueCases(places,
                 [](const OptionDescription& option) {
                   if (option.values.empty()) return std::string("return");
                   return absl::StrCat("COMPREPLY=($(compgen -W ", Quoted(absl::StrJoin(option.values, " ")),
                                       " -- \"$word\")); return");
                 }),
      "  esac\n  case $at in\n");
  for (const Place& place : places) {
    absl::StrAppend(&text, "    ", Quoted(place.path), ") words=", Quoted(absl::StrJoin(WordsOf(place), " ")), " ;;\n");
  }
  absl::StrAppend(&text, "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n",
                  "complete -o bashdefault -o default -F _", program.name, " ", program.name, "\n");
  return text;
}

std::string ZshCompletion(const CommandDescription& program) {
  const std::vector<Place> places = PlacesOf(program);
  const auto described = [](const std::string& name, const std::string& help) {
    return Quoted(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", help));
  };
  std::string text = absl::StrCat(
      "#compdef ", program.name, "\n# Completes ", program.name, " in zsh. For one shell: source <(", program.name,
      " completion zsh)\n_", program.name, "() {\n  local at=", program.name,
      " word\n  local -a commands options\n  for word in ${words[2,CURRENT-1]}; do\n    case \"$at $word\" in\n      (",
      PathsBelow(places, "|"), ") at+=\" $word\" ;;\n    esac\n  done\n  case \"$at ${words[CURRENT-1]}\" in\n",
      ValueCases(places,
                 [](const OptionDescription& option) {
                   if (option.values.empty()) return std::string("_files; return");
                   return absl::StrCat("compadd -- ", absl::StrJoin(option.values, " "), "; return");
                 }),
      "  esac\n  case $at in\n");
  for (const Place& place : places) {
    std::vector<std::string> commands, options;
    for (const CommandDescription& command : place.command->commands) {
      commands.push_back(described(command.name, command.help));
    }
    for (const OptionDescription* option : place.options) {
      for (const std::string& name : option->names) options.push_back(described(name, option->help));
    }
    absl::StrAppend(&text, "    ", Quoted(place.path), ")\n      commands=(", absl::StrJoin(commands, " "),
                    ")\n      options=(", absl::StrJoin(options, " "), ") ;;\n");
  }
  absl::StrAppend(&text,
                  "  esac\n  if [[ $PREFIX == -* ]]; then\n    _describe option options\n"
                  "  elif (( ${#commands} )); then\n    _describe command commands\n  else\n    _files\n  fi\n}\n"
                  "if [[ $funcstack[1] == _",
                  program.name, " ]]; then _", program.name, " \"$@\"; else compdef _", program.name, " ", program.name,
                  "; fi\n");
  return text;
}

std::string FishCompletion(const CommandDescription& program) {
  const std::vector<Place> places = PlacesOf(program);
  std::string text = absl::StrCat(
      "# Completes ", program.name, " in fish. For one shell: ", program.name, " completion fish | source\nfunction __",
      program.name, "_at\n  set -l at ", program.name,
      "\n  for word in (commandline -opc)[2..-1]\n    switch \"$at $word\"\n      case ", PathsBelow(places, " "),
      "\n        set at \"$at $word\"\n    end\n  end\n  test \"$at\" = \"$argv[1]\"\nend\n");
  for (const Place& place : places) {
    const std::string begin = absl::StrCat("complete -c ", program.name, " -n ",
                                           FishQuoted(absl::StrCat("__", program.name, "_at ", Quoted(place.path))));
    for (const CommandDescription& command : place.command->commands) {
      absl::StrAppend(&text, begin, " -f -a ", command.name, " -d ", FishQuoted(command.help), "\n");
    }
    for (const OptionDescription* option : place.options) {
      std::string names;
      for (const std::string& name : option->names) {
        absl::StrAppend(&names, name.starts_with("--") ? " -l " : " -s ", name.substr(name.starts_with("--") ? 2 : 1));
      }
      std::string value;
      if (option->takes_value) value = " -r";
      if (!option->values.empty()) value = absl::StrCat(" -x -a ", FishQuoted(absl::StrJoin(option->values, " ")));
      absl::StrAppend(&text, begin, names, value, " -d ", FishQuoted(option->help), "\n");
    }
  }
  return text;
}

}  // namespace cairn::cli
