//===- JsonTest.cpp - What is written is JSON -----------------------------===//

#include "penstock/Support/Json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <random>

using namespace penstock;

namespace {

template <typename T>
std::string json(const T &value) {
  std::string text;
  appendJson(text, value);
  return text;
}

TEST(Json, Text) {
  EXPECT_EQ(json("a \"b\" \\ c\nd\te\x01\x1f\x7f"),
            "\"a \\\"b\\\" \\\\ c\\nd\\te\\u0001\\u001f\x7f\"");
  // Characters of two, three and four bytes.
  EXPECT_EQ(json("ü€😀"), "\"ü€😀\"");
}

TEST(Json, WhatIsNoUtf8IsReplaced) {
  const std::string bad = "\xef\xbf\xbd";
  for (const char *text :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    std::string expected;
    for (size_t i = 0; i < std::string(text).size(); ++i)
      expected += bad;
    EXPECT_EQ(json(text), '"' + expected + '"');
  }
  EXPECT_EQ(json("a\xe2\x82z"), "\"a" + bad + bad + "z\"");
}

TEST(Json, AnyBytesBecomeAString) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 20, ' ');
    for (char &c : text)
      c = char(random());
    EXPECT_TRUE(nlohmann::json::accept(json(text))) << json(text);
  }
  // And valid ones the same string.
  for (char32_t c = 0; c < 0x3000; ++c) {
    const std::string text = nlohmann::json::parse(
        c < 0x80 ? json(std::string(1, char(c)))
        : c < 0x800
            ? json(std::string{char(0xc0 | c >> 6), char(0x80 | (c & 63))})
            : json(std::string{char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)),
                               char(0x80 | (c & 63))}));
    EXPECT_EQ(nlohmann::json::parse(json(text)), text) << uint32_t(c);
  }
}

TEST(Json, Numbers) {
  EXPECT_EQ(json(true), "true");
  EXPECT_EQ(json(-3), "-3");
  EXPECT_EQ(json(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(json(0.1), "0.1");
  for (double value : {std::nan(""), std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(json(value), "null");
  for (double value : {1.0 / 3, 1e300, 5e-324, -1e-7, 123456789.125})
    EXPECT_EQ(nlohmann::json::parse(json(value)).get<double>(), value);
}

TEST(Json, Objects) {
  JsonObject object;
  EXPECT_EQ(object.str(), "{}");
  object.set("ok", false);
  object.set("name", "a");
  object.object("inner").set("x", 1.5);
  object.object("inner").object("empty");
  object.set("ok", true);
  const JsonObject copy = object;
  EXPECT_EQ(copy.str(), R"({
  "ok": true,
  "name": "a",
  "inner": {
    "x": 1.5,
    "empty": {}
  }
})");
}

} // namespace
