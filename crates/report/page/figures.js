"use strict";
// Figures as judge/src/figures.rs prints them; tests/it/html_page.rs compares both. A null of the JSON is unknown.

const UNKNOWN = "-";

const threeDigits = (size) => size.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);

function rate(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "-" : "";
  if (size < 0.005) return sign + "<0.01";
  if (size < 9999.5) return sign + threeDigits(size);
  const power = [1, 2, 3, 4].find((n) => size / 1e3 ** n < 999.5) || 4;
  return sign + threeDigits(size / 1e3 ** power) + " kMGT"[power];
}

function percent(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  if (Math.abs(value) >= 999.95) return value.toFixed(0);
  return (Math.abs(value) < 0.05 ? 0 : value).toFixed(1);
}

function inUnit(us, limit) {
  if (!Number.isFinite(us)) return [UNKNOWN, ""];
  if (us < limit) return [us <= 0 ? "0" : rate(us), "us"];
  return us < 999500 ? [threeDigits(us / 1e3), "ms"] : [threeDigits(us / 1e6), "s"];
}

function micros(us) {
  const step = 10 ** (Math.floor(Math.log10(us)) - 2);
  const digits = us >= 1000 ? Math.round(us / step) * step : us;
  return digits >= 1000 && digits < 999500 ? String(digits) : inUnit(digits, 999500).join("").replace("us", "");
}

function duration(us) {
  const [digits, unit] = inUnit(us, 999.5);
  return `${digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits} ${unit}`.trim();
}

function seconds(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const whole = Math.round(value);
  if (whole <= 9 && Math.abs(value - whole) > 0.005) return value.toFixed(2) + " s";
  if (whole <= 119) return whole + " s";
  const [big, small, size] = whole <= 7199 ? ["min", "s", 60] : ["h", "min", 3600];
  const rest = Math.floor(((whole % size) * 60) / size);
  return `${Math.floor(whole / size)} ${big}${rest === 0 ? "" : ` ${rest} ${small}`}`;
}

function bytesPerSecond(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const units = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"];
  const power = units.findIndex((_, n) => value / 1024 ** n < 1023.5 || n === units.length - 1);
  return `${power === 0 ? value.toFixed(0) : threeDigits(value / 1024 ** power)} ${units[power]}`;
}

const plain = (value) => String(value ?? UNKNOWN);
