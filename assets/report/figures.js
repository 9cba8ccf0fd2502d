"use strict";
// Figures as src/figures.rs prints them; tests/it/html_page.rs compares both.

const UNKNOWN = "-";

function threeDigits(size) {
  return size.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

function rate(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "-" : "";
  if (size < 0.005) return sign + "<0.01";
  if (size < 9999.5) return sign + threeDigits(size);
  let scaled = size / 1e3,
    unit = "k";
  for (const next of ["M", "G", "T"]) {
    if (scaled < 999.5) break;
    scaled /= 1e3;
    unit = next;
  }
  return sign + threeDigits(scaled) + unit;
}

function percent(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  if (Math.abs(value) >= 999.95) return value.toFixed(0);
  return (Math.abs(value) < 0.05 ? 0 : value).toFixed(1);
}

function inUnit(us, most) {
  if (!Number.isFinite(us)) return [UNKNOWN, "us"];
  if (us < most) return [us <= 0 ? "0" : rate(us), "us"];
  if (us < 999500) return [threeDigits(us / 1e3), "ms"];
  return [threeDigits(us / 1e6), "s"];
}

function micros(us) {
  const [digits, unit] = inUnit(us, 9999.5);
  return unit === "us" ? digits : digits + unit;
}

function duration(us) {
  const [digits, unit] = inUnit(us, 999.5);
  return digits === UNKNOWN ? digits : (digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits) + " " + unit;
}

function seconds(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const whole = Math.round(value);
  if (whole <= 9 && Math.abs(value - whole) > 0.005) return value.toFixed(2) + " s";
  if (whole <= 119) return whole + " s";
  const join = (big, b, small, s) => (s === 0 ? `${b} ${big}` : `${b} ${big} ${s} ${small}`);
  if (whole <= 7199) return join("min", Math.floor(whole / 60), "s", whole % 60);
  return join("h", Math.floor(whole / 3600), "min", Math.floor((whole % 3600) / 60));
}

function bytesPerSecond(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const units = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"];
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return (unit === 0 ? value.toFixed(0) : threeDigits(value)) + " " + units[unit];
}

// A value that JSON has as null is unknown, not 0.
function known(value, format) {
  return value === null || value === undefined ? UNKNOWN : format(value);
}
