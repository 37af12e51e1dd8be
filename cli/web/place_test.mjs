import assert from "node:assert";
import test from "node:test";

import {linkTo, operationName, placeOf, VIEWS} from "./place.mjs";

test("placeOf_WhatLinkToWrote_IsTheSamePlace", () => {
  for (const job of ["llm", "team/llm.v2", "a&view=ranks#x=\"'<b>"]) {
    for (const view of VIEWS) {
      for (const [step, operation] of [[null, null], [0, null], [1200, "7@2026-11-29T12:00:00Z"]]) {
        assert.deepStrictEqual(placeOf(linkTo({job, view, step, operation})), {job, view, step, operation});
      }
    }
  }
});

test("placeOf_AWrongAddress_IsTheFirstView", () => {
  const nowhere = {job: null, view: "now", step: null, operation: null};
  for (const hash
           of ["", "#", "#view=nothing&step=x", "#job=&step=-1",
               "#step=1e9&operation=", "#%%%=&&&==", "#step=9999999999999"]) {
    assert.deepStrictEqual(placeOf(hash), nowhere, hash);
  }
});

test("operationName_ARestartedCoordinatorCountsAnew_IsAnotherName", () => {
  assert.notStrictEqual(
      operationName({id: 1, begin_time: "2026-11-29T12:00:00Z"}),
      operationName({id: 1, begin_time: "2026-11-29T13:00:00Z"}));
});
