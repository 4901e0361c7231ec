//===- CommandLine.cpp - Options by a table -------------------------------===//

#include "CommandLine.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <sstream>

using namespace penstock;
using namespace penstock::run;

void CommandLine::add(const char *name, const char *type, const char *help,
                      std::string fallback, Setter set) {
  options.push_back({name, type, help, std::move(fallback), std::move(set)});
}

void CommandLine::text(const char *name, const char *type, std::string &value,
                       const char *help) {
  add(name, type, help, value, [&value](const std::string &text) {
    value = text;
    return std::string();
  });
}

template <typename Integer>
CommandLine::Setter
CommandLine::integerSetter(std::function<void(Integer)> assign, Integer low,
                           Integer high) {
  return [=](const std::string &text) -> std::string {
    Integer value = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || value < low || value > high)
      return "an integer from " + std::to_string(low) + " to " +
             std::to_string(high);
    assign(value);
    return {};
  };
}

template <typename Integer>
void CommandLine::integer(const char *name, const char *type, Integer &value,
                          Integer low, Integer high, const char *help) {
  add(name, type, help, std::to_string(value),
      integerSetter<Integer>([&value](Integer given) { value = given; }, low,
                             high));
}

template <typename Integer>
void CommandLine::integer(const char *name, const char *type,
                          std::optional<Integer> &value, Integer low,
                          Integer high, const char *help) {
  add(name, type, help, "",
      integerSetter<Integer>([&value](Integer given) { value = given; }, low,
                             high));
}

template void CommandLine::integer(const char *, const char *, int64_t &,
                                   int64_t, int64_t, const char *);
template void CommandLine::integer(const char *, const char *,
                                   std::optional<int32_t> &, int32_t, int32_t,
                                   const char *);
template void CommandLine::integer(const char *, const char *,
                                   std::optional<uint64_t> &, uint64_t,
                                   uint64_t, const char *);

void CommandLine::seconds(const char *name, double &value, const char *help) {
  std::ostringstream fallback;
  fallback << value;
  add(name, "SECONDS", help, fallback.str(),
      [&value](const std::string &text) -> std::string {
        char *end = nullptr;
        errno = 0;
        const double given = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != 0 || !(given >= 0 && given <= 1e9))
          return "a number from 0 to 1e9";
        if (errno == ERANGE)
          return "a number from 0 to 1e9 that can be told from 0; write 0 if "
                 "you mean it, else 1e-300 at least";
        value = given;
        return {};
      });
}

void CommandLine::flag(const char *name, bool &value, const char *help) {
  add(name, "", help, "", [&value](const std::string &) {
    value = true;
    return std::string();
  });
}

void CommandLine::argument(const char *type, std::string &value,
                           const char *help) {
  positional = {"", type, help, "", [&value](const std::string &text) {
                  value = text;
                  return std::string();
                }};
}

CommandLine::Option *CommandLine::find(const std::string &name) {
  const auto at =
      std::find_if(options.begin(), options.end(),
                   [&](const Option &option) { return option.name == name; });
  return at == options.end() ? nullptr : &*at;
}

/// Insertions, deletions and replacements that make one word of the other.
static size_t distance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

Failure CommandLine::unknown(const std::string &name) const {
  const auto nearest = std::min_element(
      options.begin(), options.end(), [&](const Option &a, const Option &b) {
        return distance(a.name, name) < distance(b.name, name);
      });
  std::string message = "there is no option --" + name;
  if (distance(nearest->name, name) <= 1 + name.size() / 4)
    message += "; did you mean --" + nearest->name + "?";
  else
    message += "; --help names all";
  return Failure{message};
}

Status CommandLine::parse(const std::vector<std::string> &arguments) {
  bool onlyArguments = false; // behind "--"
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &word = arguments[i];
    if (!onlyArguments && word == "--") {
      onlyArguments = true;
      continue;
    }
    if (onlyArguments || word.size() < 2 || word[0] != '-') {
      if (positional.given)
        return Failure{"'" + word + "' is one " + positional.type +
                       " too many; name one, and begin options with --"};
      positional.given = true;
      (void)positional.set(word);
      continue;
    }
    if (word == "-h" || word == "--help") {
      help = true;
      return success();
    }
    if (word.starts_with("--help="))
      return Failure{"--help takes no value"};
    if (word[1] != '-')
      return Failure{"there is no option " + word +
                     "; options begin with --, and --help names all"};
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals - 2);
    Option *option = find(name);
    if (!option)
      return unknown(name);
    std::string value;
    if (option->isFlag()) {
      if (equals != word.npos)
        return Failure{"--" + name + " takes no value; leave '" +
                       word.substr(equals) + "' out"};
    } else {
      if (option->given)
        return Failure{"--" + name + " is given twice; leave one out"};
      if (equals != word.npos)
        value = word.substr(equals + 1);
      else if (i + 1 < arguments.size())
        value = arguments[++i];
      else
        return Failure{"--" + name + " needs a value; write --" + name + "=" +
                       option->type};
    }
    option->given = true;
    if (const std::string wanted = option->set(value); !wanted.empty())
      return Failure{"--" + name + ": '" + value + "' is not " + wanted};
  }
  return success();
}

/// Adds words from `column` on, in lines of 80 characters; `at` is where the
/// first line is already.
static void addColumn(std::string &text, size_t at, size_t column,
                      const std::string &words) {
  if (at + 2 > column) {
    text += '\n';
    at = 0;
  }
  std::istringstream in(words);
  std::string word;
  bool first = true;
  while (in >> word) {
    if (!first && at + 1 + word.size() > 80) {
      text += '\n';
      at = 0;
      first = true;
    }
    if (first) {
      text.append(column - at, ' ');
      at = column;
    } else {
      text += ' ';
      ++at;
    }
    text += word;
    at += word.size();
    first = false;
  }
  text += '\n';
}

std::string CommandLine::describe(const std::string &program) const {
  constexpr size_t kColumn = 30;
  std::string text = "Usage: " + program + " [OPTIONS] [" + positional.type +
                     "]\n\n  " + positional.type;
  addColumn(text, 2 + positional.type.size(), kColumn, positional.help);
  text += "\nOptions:\n";
  auto add = [&](const Option &option) {
    std::string head = "  --" + option.name;
    if (!option.isFlag())
      head += "=" + option.type;
    text += head;
    addColumn(text, head.size(), kColumn,
              option.help + (option.fallback.empty()
                                 ? ""
                                 : " [" + option.fallback + "]"));
  };
  add({"help", "", "Print this, and end", "", {}});
  for (const Option &option : options)
    add(option);
  return text;
}
