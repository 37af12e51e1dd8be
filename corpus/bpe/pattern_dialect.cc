#include "corpus/bpe/pattern_dialect.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::corpus {
namespace {

constexpr int kMaxNesting = 32;

// Returns the members of an escape that stands for a set, in the form that they have inside a class.
std::string_view Members(char escape) {
  switch (escape) {
    case 'w':
      return R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
    case 'h':
      return "0-9A-Fa-f";
    case 's':
      return R"(\p{White_Space})";
    default:
      return {};
  }
}

// Returns the members of [:name:].
std::string_view PosixMembers(std::string_view name) {
  static constexpr struct {
    std::string_view name, members;
  } kClasses[] = {
      {"alnum", R"(\p{Alphabetic}\p{Nd})"},
      {"alpha", R"(\p{Alphabetic})"},
      {"ascii", R"(\x{0}-\x{7F})"},
      {"blank", R"(\p{Zs}\t)"},
      {"cntrl", R"(\p{Cc})"},
      {"digit", R"(\p{Nd})"},
      {"lower", R"(\p{Lowercase})"},
      {"punct", R"(\p{P}\p{S})"},
      {"space", R"(\p{White_Space})"},
      {"upper", R"(\p{Uppercase})"},
      {"xdigit", "0-9A-Fa-f"},
  };
  if (name == "word") return Members('w');
  for (const auto& one : kClasses) {
    if (one.name == name) return one.members;
  }
  return {};
}

bool IsScript(std::string_view name) {
  const std::string probe = absl::StrCat("\\p{sc:", std::string(name), "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(probe.data()), probe.size(),
                                         PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  // Returns nothing if the expression is not understood.
  std::optional<std::string> Run() {
    while (at_ < in_.size()) {
      if (!Step()) return std::nullopt;
    }
    return std::move(out_);
  }

 private:
  bool Step() {
    const char c = in_[at_];
    if (c == '\\') return at_ + 1 < in_.size() && Escape();
    if (c == '[') {
      auto one = Class(0);
      if (!one.has_value()) return false;
      Atom(*one);
    } else if (c == '(') {
      groups_.push_back(out_.size());
      Group();
    } else if (c == ')') {
      if (groups_.empty()) return false;
      atom_ = groups_.back();
      groups_.pop_back();
      out_ += in_[at_++];
    } else if (c == '{') {
      Interval();
    } else if (c == '*' || c == '+' || c == '?' || c == '|') {
      out_ += in_[at_++];
    } else {
      size_t end = at_ + 1;
      while (end < in_.size() && (static_cast<uint8_t>(in_[end]) & 0xC0) == 0x80) ++end;
      const std::string_view character = in_.substr(at_, end - at_);
      at_ = end;
      Atom(character);
    }
    return true;
  }

  void Atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  bool Escape() {
    const char c = in_[at_ + 1];
    if (const std::string_view members = Members(Lower(c)); !members.empty()) {
      at_ += 2;
      Atom(absl::StrCat(c == Lower(c) ? "[" : "[^", std::string(members), "]"));
      return true;
    }
    if (c == 'b' || c == 'B') {
      at_ += 2;
      const std::string word = absl::StrCat("[", std::string(Members('w')), "])");
      Atom(c == 'b' ? absl::StrCat("(?:(?<=", word, "(?!", word, "|(?<!", word, "(?=", word, ")")
                    : absl::StrCat("(?:(?<=", word, "(?=", word, "|(?<!", word, "(?!", word, ")"));
      return true;
    }
    Atom(Copied());
    return true;
  }

  // Copies an escape that is not a set of ours. A script's name gets the prefix that PCRE2 needs.
  std::string Copied() {
    const std::string escape(in_.substr(at_, EscapeLength()));
    at_ += escape.size();
    if (escape.size() < 6 || Lower(escape[1]) != 'p') return escape;  // \p{L}, \p{Lu}
    std::string_view name = std::string_view(escape).substr(3, escape.size() - 4);
    const bool caret = name[0] == '^';
    if (caret) name.remove_prefix(1);
    if (!IsScript(name)) return escape;
    return absl::StrCat((escape[1] == 'P') != caret ? "\\P{sc:" : "\\p{sc:", std::string(name), "}");
  }

  // Counts the braces of \p{...}, \x{...} and the like too, because they are no interval.
  size_t EscapeLength() const {
    static constexpr std::string_view kBraced = "pPxogkNu";
    if (at_ + 2 < in_.size() && in_[at_ + 2] == '{' && kBraced.find(in_[at_ + 1]) != std::string_view::npos) {
      const size_t close = in_.find('}', at_ + 2);
      if (close != std::string_view::npos) return close + 1 - at_;
    }
    return std::min<size_t>(2, in_.size() - at_);
  }

  // Copies "(" and, if they follow, the letters of "(?imx-imx".
  void Group() {
    out_ += in_[at_++];
    if (at_ == in_.size() || in_[at_] != '?') return;
    out_ += in_[at_++];
    const size_t end = std::min(in_.find_first_not_of("imsx-", at_), in_.size());
    if (end < in_.size() && (in_[end] == ':' || in_[end] == ')')) {
      for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
    }
    // Nothing of (?=, (?<name> and the like is an atom.
    while (at_ < in_.size() && std::string_view("=!<>:P'").find(in_[at_]) != std::string_view::npos) out_ += in_[at_++];
  }

  // Copies {n,m} and, if a plus follows, makes it repeat the interval.
  void Interval() {
    const size_t close = in_.find('}', at_);
    const bool interval = close != std::string_view::npos && close > at_ + 1 &&
                          in_.substr(at_, close - at_).find_first_not_of("0123456789,", 1) == std::string_view::npos;
    if (!interval) return Atom(in_.substr(at_++, 1));
    out_ += in_.substr(at_, close + 1 - at_);
    at_ = close + 1;
    if (at_ < in_.size() && in_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
  }

  // Returns the class at `at_` as an expression that matches one character; nothing if the class does not end.
  std::optional<std::string> Class(int depth) {
    if (depth > kMaxNesting) return std::nullopt;
    ++at_;
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    if (negated) ++at_;
    std::vector<std::string> operands;  // the operands of &&
    std::vector<std::string> others;    // parts of the operand that a class of PCRE2 cannot hold
    std::string plain;
    const auto finish = [&] {
      if (plain.empty() && others.empty()) return false;
      if (!plain.empty()) others.push_back(absl::StrCat("[", plain, "]"));
      operands.push_back(others.size() == 1 ? others[0] : absl::StrCat("(?:", absl::StrJoin(others, "|"), ")"));
      return true;
    };
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) return std::nullopt;
      const char c = in_[at_];
      if (c == ']' && !first) break;
      if (c == '\\' && at_ + 1 < in_.size()) {
        const char kind = in_[at_ + 1];
        const std::string_view members = Members(Lower(kind));
        if (members.empty()) {
          plain += Copied();
        } else {
          if (kind == Lower(kind)) {
            plain += members;
          } else {
            others.push_back(absl::StrCat("[^", std::string(members), "]"));
          }
          at_ += 2;
        }
      } else if (c == '[' && in_.substr(at_, 2) == "[:" && in_.find(":]", at_) != std::string_view::npos) {
        const size_t end = in_.find(":]", at_) + 2;
        const bool none = in_[at_ + 2] == '^';
        const size_t begin = at_ + (none ? 3 : 2);
        const std::string_view members = PosixMembers(in_.substr(begin, std::max(end - 2, begin) - begin));
        if (members.empty()) {
          plain += in_.substr(at_, end - at_);
        } else if (none) {
          others.push_back(absl::StrCat("[^", std::string(members), "]"));
        } else {
          plain += members;
        }
        at_ = end;
      } else if (c == '[') {
        auto nested = Class(depth + 1);
        if (!nested.has_value()) return std::nullopt;
        others.push_back(*std::move(nested));
      } else if (in_.substr(at_, 2) == "&&") {
        if (!finish()) return std::nullopt;
        plain.clear();
        others.clear();
        at_ += 2;
      } else {
        plain += c;
        ++at_;
      }
    }
    ++at_;
    if (operands.empty() && others.empty()) return absl::StrCat(negated ? "[^" : "[", plain, "]");
    if (!finish()) return std::nullopt;
    std::string all = operands.back();
    for (size_t i = operands.size() - 1; i > 0; --i) all = absl::StrCat("(?=", operands[i - 1], ")", all);
    return negated ? absl::StrCat("(?:(?!", all, ")(?s:.))") : absl::StrCat("(?:", all, ")");
  }

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

std::string ToPcre2(std::string_view pattern) {
  auto translated = Translator(pattern).Run();
  return translated.has_value() ? *std::move(translated) : std::string(pattern);
}

}  // namespace cairn::corpus
