#include "mapping/key_space.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "mapping/state_key.h"

namespace cairn::aoa {

KeySpace::KeySpace(std::span<const ShardDesc> shards, SymbolTable& symbols) : known_(true), shards_(shards) {
  next_.assign(shards.size(), kNone);
  const auto room = [&](Symbol symbol) {
    if (symbol < first_.size()) return;
    const size_t size = std::max<size_t>(symbols.size(), first_.size() * 2);
    first_.resize(size, kNone);
    last_.resize(size, kNone);
    is_weight_.resize(size, false);
  };
  // The shards of one tensor usually stand side by side.
  const auto follows = [&](size_t i) { return i > 0 && shards[i - 1].key == shards[i].key; };
  std::vector<std::string_view> keys;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!follows(i)) keys.push_back(shards[i].key);
  }
  std::vector<Symbol> interned;
  symbols.Intern(keys, interned);
  auto next_symbol = interned.begin();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string_view key = shards[i].key;
    const Symbol symbol = follows(i) ? next_symbol[-1] : *next_symbol++;
    room(symbol);
    if (first_[symbol] == kNone) {
      first_[symbol] = static_cast<uint32_t>(i);
      const StateKey state = SplitStateKey(key);
      const Symbol weight = state.suffix.empty() ? symbol : symbols.Intern(state.weight);
      room(weight);
      if (state.kind != StateKind::kScalar && !is_weight_[weight]) {
        is_weight_[weight] = true;
        weights_.push_back(weight);
      }
    } else {
      next_[last_[symbol]] = static_cast<uint32_t>(i);
    }
    last_[symbol] = static_cast<uint32_t>(i);
  }
}

uint32_t KeySpace::ShapeShard(Symbol weight, const SymbolTable& symbols) const {
  if (FirstShard(weight) != kNone) return FirstShard(weight);
  // The suffixes are tried in the order of names: .moment1_0, .moment2_0, .w_0.
  for (size_t suffix : {1, 2, 0}) {
    const auto key = symbols.Find(std::string(symbols.Text(weight)) += kStateSuffixes[suffix]);
    if (key.has_value() && FirstShard(*key) != kNone) return FirstShard(*key);
  }
  return kNone;
}

int64_t KeySpace::ShardCount(Symbol key) const {
  std::vector<const Shape*> offsets;
  for (uint32_t i = FirstShard(key); i != kNone; i = NextShard(i)) offsets.push_back(&shards_[i].global_offset);
  const auto less = [](const Shape* a, const Shape* b) { return *a < *b; };
  const auto equal = [](const Shape* a, const Shape* b) { return *a == *b; };
  std::sort(offsets.begin(), offsets.end(), less);
  return std::unique(offsets.begin(), offsets.end(), equal) - offsets.begin();
}

KeySpace::Family* KeySpace::FamilyOf(std::string_view skeleton, const SymbolTable& symbols) {
  if (!indexed_) {
    indexed_ = true;
    std::string key_skeleton;
    for (Symbol weight : weights_) {
      key_skeleton.clear();
      AppendSkeleton(symbols.Text(weight), key_skeleton);
      families_[key_skeleton].weights.push_back(weight);
    }
  }
  const auto found = families_.find(absl::string_view(skeleton.data(), skeleton.size()));
  return found == families_.end() ? nullptr : &found->second;
}

void KeySpace::Match(const NamePattern& pattern, const SymbolTable& symbols, uint64_t& tries,
                     const std::function<void(Symbol, const NamePattern::Captures&)>& visit) {
  const Family* family = FamilyOf(pattern.Skeleton(), symbols);
  if (family == nullptr) return;
  NamePattern::Captures captures;
  for (Symbol weight : family->weights) {
    if (pattern.Match(symbols.Text(weight), captures, tries)) visit(weight, captures);
  }
}

std::vector<Symbol> KeySpace::MatchStar(std::string_view name, const SymbolTable& symbols, uint64_t& tries) {
  const NamePattern pattern(name);
  const size_t star = name.find('*');
  const auto is_digit = [&](size_t at) { return at < name.size() && name[at] >= '0' && name[at] <= '9'; };
  std::vector<Symbol> found;
  if (is_digit(star - 1) || is_digit(star + 1)) {
    // If there are digits next to the star, the part of the number that the star matches must be found by trying.
    std::vector<std::pair<std::string_view, Symbol>> matches;
    Match(pattern, symbols, tries, [&](Symbol weight, const NamePattern::Captures& captures) {
      matches.emplace_back(captures[static_cast<size_t>(Placeholder::kStar)], weight);
    });
    std::sort(matches.begin(), matches.end(),
              [](const auto& a, const auto& b) { return NumberLess(a.first, b.first); });
    for (const auto& match : matches) found.push_back(match.second);
    return found;
  }
  Family* family = FamilyOf(pattern.Skeleton(), symbols);
  if (family == nullptr) return found;
  // Says which number of the name the star stands for.
  size_t position = 0;
  for (size_t at = 0; at < star; ++at) {
    if (is_digit(at) && !is_digit(at + 1)) ++position;
  }
  if (family->without.size() <= position) family->without.resize(position + 1);
  auto& index = family->without[position];
  if (index.empty()) {
    std::string rest;
    for (Symbol weight : family->weights) {
      const std::string_view text = symbols.Text(weight);
      size_t number = 0, from = 0, to = 0;
      for (size_t at = 0; at < text.size(); ++at) {
        const auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
        if (!digit(at)) continue;
        size_t end = at;
        while (digit(end)) ++end;
        if (number++ == position) {
          from = at;
          to = end;
          break;
        }
        at = end - 1;
      }
      rest.assign(text.substr(0, from));
      rest += '*';
      rest += text.substr(to);
      index[rest].push_back(weight);
    }
    for (auto& [text, weights] : index) {
      const size_t prefix = text.find('*');
      const size_t suffix = text.size() - prefix - 1;
      const auto number = [&](Symbol weight) {
        const std::string_view key = symbols.Text(weight);
        return key.substr(prefix, key.size() - prefix - suffix);
      };
      std::sort(weights.begin(), weights.end(), [&](Symbol a, Symbol b) { return NumberLess(number(a), number(b)); });
    }
  }
  const auto matches = index.find(absl::string_view(name.data(), name.size()));
  if (matches != index.end()) found = matches->second;
  return found;
}

}  // namespace cairn::aoa
